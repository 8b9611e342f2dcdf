"""Scripts of the public records, known by digests of their functions, with the translation of each.

A translation by names and marks misses what a function does. Where every function of a script is a record's, it does
what the record does, so that the preset's settings hold for all that no variable of the script changes. Nothing of the
scripts is kept but the digests in known_scripts.csv, which scripts/dev/known_scripts.py writes.
"""

from __future__ import annotations

import ast
import csv
import functools
import hashlib
import itertools
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from golf.lab.report.changes import CODE, change
from golf.run.identity import identity
from golf.settings.composition import compose
from golf.settings.config import Config
from golf.words import as_override

TABLE = Path(__file__).with_suffix(".csv")
LEAST_SHARE = 0.8  # of a record's functions that a relative of it has
PRINTS = ("print", "log", "log0")
LABELS = (".name", ".tag")  # of groups, which set nothing
DIGITS = 6  # hexadecimal, of a digest
_SKIPPED = {"ctx", "type_comment", "kind", "annotation", "returns", "type_params", "simple"}


@dataclass(frozen=True)
class KnownScript:
    """A record's script, and its translation for the run that was published."""

    folder: str
    experiment: str
    digests: frozenset[str]  # of its functions, as `name:digest`
    settled: Mapping[str, str]  # variables without a counterpart here, at the values for which the preset holds
    overrides: tuple[str, ...]  # what names and marks say of it, by which another translation is compared


@dataclass(frozen=True)
class Likeness:
    """The known script that a script is most like, and the names of the functions in which the two differ."""

    known: KnownScript
    differing: tuple[str, ...]


@functools.cache
def known_scripts() -> tuple[KnownScript, ...]:
    """Return the scripts of the table. Of its digests it has those that an earlier script lacks, or has beyond."""
    of_folder = dict[str, frozenset[str]]()
    known = []
    with TABLE.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            changed = frozenset(row["digests"].split())
            of_folder[row["folder"]] = own = of_folder.get(row["like"], frozenset()) ^ changed
            settled = dict(pair.split("=", 1) for pair in shlex.split(row["settled"]))
            overrides = tuple(shlex.split(row["overrides"]))
            known.append(KnownScript(row["folder"], row["experiment"], own, settled, overrides))
    return tuple(known)


def likeness(tree: ast.Module) -> Likeness | None:
    """Return the known script that shares most functions with a script, None if it is a relative of none."""
    own = frozenset(digests(tree))
    best = min(known_scripts(), key=lambda known: len(known.digests ^ own), default=None)
    if best is None or len(best.digests & own) < LEAST_SHARE * max(len(best.digests), len(own)):
        return None
    return Likeness(best, tuple(sorted({digest.partition(":")[0] for digest in best.digests ^ own})))


def digests(tree: ast.Module) -> Iterator[str]:
    """Yield `name:digest` of every function, method and constant of a script.

    Texts that it prints, annotations and documentation count for nothing, nor do defaults of variables.
    """
    others = dict[str, list[ast.stmt]]()
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                name = getattr(part, "name", "") or _target(part)
                if not (name and _reads_environment(part)) and not _is_text(part):
                    others.setdefault(f"{node.name}.{name}" if name else node.name, []).append(part)
        elif not isinstance(node, ast.Import | ast.ImportFrom) and not _is_text(node) and not _reads_environment(node):
            others.setdefault(getattr(node, "name", "") or _target(node) or "statements", []).append(node)
    for name, parts in others.items():
        content = "\x1f".join(itertools.chain.from_iterable(map(_words, parts)))
        yield f"{name}:{hashlib.sha256(content.encode()).hexdigest()[:DIGITS]}"


def _words(node: Any) -> Iterator[str]:
    """Yield what a node consists of, the same from every version of Python."""
    if isinstance(node, list):
        for item in node:
            yield from _words(item)
        yield "]"
    elif not isinstance(node, ast.AST):
        yield repr(node)
    elif isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and str(node.value).strip("\n") == ""):
        # Where this Python cannot read an f-string, `parse` gives an empty text for it.
        yield "text"
    elif isinstance(node, ast.AnnAssign):
        yield from _words(ast.Assign([node.target], node.value)) if node.value else ()
    elif not _is_text(node):
        yield type(node).__name__
        for key, value in ast.iter_fields(node):
            if key not in _SKIPPED:
                yield from _words(value)


def _is_text(node: ast.AST) -> bool:
    """Tell whether a statement is a documentation string or prints something."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) or (
        isinstance(value, ast.Call) and getattr(value.func, "id", getattr(value.func, "attr", "")) in PRINTS
    )


def _target(node: ast.AST) -> str:
    """Return the name that a statement assigns to, empty for other statements."""
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    return getattr(targets[0], "id", "")


def _reads_environment(node: ast.AST) -> bool:
    """Tell whether an assignment reads a variable: its default is compared as a value."""
    names = (getattr(inner, "attr", getattr(inner, "id", "")) for inner in ast.walk(node))
    return bool(_target(node)) and any(name in ("environ", "getenv") for name in names)


def on_preset(known: KnownScript, overrides: Sequence[str]) -> list[str]:
    """Return `overrides`, which names and marks of a relative of `known` gave, as the record's preset and changes."""
    preset = [f"experiment={known.experiment}", "scale=record"]
    cfg = compose(list(overrides))
    before, after = identity(compose(list(known.overrides))), identity(cfg)
    changed, own = change(before, after), compose(preset).tech
    removed, added = {*changed.removed} & {*own}, {*changed.added} - {*own}
    # A list of techniques takes the place of the preset's.
    selected = [f"tech=[{','.join(sorted(({*own} | added) - removed))}]"] if added else []
    dropped = [f"drop=[{','.join(sorted(removed))}]"] if removed and not added else []
    names = {*changed.settings, *(key for key in after if key.startswith(tuple(f"tech.{n}." for n in changed.added)))}
    # Patterns of tensors are a table, of which a command line gives the whole.
    keys = {"quant.by_name" if key.startswith("quant.by_name.") else key for key in names}
    settings = {key: _value(cfg, key) for key in sorted(keys) if not key.endswith(LABELS) and not key.startswith(CODE)}
    machine = [o for o in overrides if o.startswith(("launch.", "seed=", "name="))]
    return [
        *preset,
        *selected,
        *dropped,
        *(f"{key}={_spelled(value)}" for key, value in settings.items()),
        *machine,
    ]


def _value(cfg: Config, key: str) -> Any:
    """Return the value of a setting by its full key; those at the default of a later version are in no identity."""
    value: Any = cfg
    for name in key.split("."):
        value = value[name] if isinstance(value, dict) else getattr(value, name)
    return value


def _spelled(value: Any) -> str:
    """Return a value as a command line has it, a table by its rows."""
    if isinstance(value, dict):
        return f"{{{','.join(f'{key}:{_spelled(item)}' for key, item in value.items())}}}"
    return as_override(value)


def unsettled(known: KnownScript, values: Mapping[str, str | None], named: Iterable[str]) -> list[str]:
    """Return as `NAME=value` what no setting of golf says and the record's run had otherwise.

    `values` are a script's variables under a command line, `named` those among them without a counterpart here.
    """
    pairs = [text.partition("=")[::2] for text in named]
    others = [f"{name}={value}" for name, value in pairs if not _same(known.settled.get(name), value)]
    gone = [
        f"{name}={values[name] or ''}"
        for name, value in known.settled.items()
        if name in values and name not in dict(pairs) and not _same(values[name], value)
    ]
    return others + gone


def _same(a: str | None, b: str | None) -> bool:
    """Tell whether two texts of a variable mean the same value."""
    try:
        return a is not None and b is not None and float(a) == float(b)
    except ValueError:
        return a == b
