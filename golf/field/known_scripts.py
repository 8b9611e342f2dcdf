"""Scripts of the public records, known by digests of their functions, with the translation of each.

A translation by names and marks misses what a function does. Where every function of a script is a record's, it does
what the record does, so that the preset's settings hold for all that no variable of the script changes. Nothing of the
scripts is kept but the digests in known_scripts.csv, which scripts/dev/known_scripts.py writes.
"""

from __future__ import annotations

import ast
import csv
import functools
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from golf.field import env_names as names
from golf.field.env_techniques import is_off, is_zero, variables_of_techniques
from golf.field.script_digests import digests, effective, live_digests, loaded_names
from golf.field.script_kernels import without_kernels
from golf.lab.report.changes import CODE, change
from golf.run.identity import identity
from golf.settings.composition import compose
from golf.settings.config import Config
from golf.tables import table_of
from golf.words import as_override

TABLE = Path(__file__).with_suffix(".csv")
LEAST_SHARE = 0.8  # of a record's functions that a relative of it has
LABELS = (".name", ".tag")  # of groups, which set nothing
# Digests of functions that differ only in what the marks of script_structure.yaml tell.
TOLD: dict[str, list[list[str]]] = table_of(__file__)["told"]


@dataclass(frozen=True)
class KnownScript:
    """A record's script, and its translation for the run that was published."""

    folder: str
    experiment: str
    digests: frozenset[str]  # of its functions, as `name:digest`; `entries` says what else stands there
    settled: Mapping[str, str]  # variables without a counterpart here, at the values for which the preset holds
    overrides: tuple[str, ...]  # what names and marks say of it, by which another translation is compared

    @functools.cached_property
    def whole(self) -> dict[str, str]:
        """Return the digest of each function."""
        return dict(entry.split(":") for entry in self.digests if ":" in entry)

    @functools.cached_property
    def live(self) -> dict[str, str]:
        """Return the digest of what the published run has of each function, without functions that it never calls."""
        others = dict(entry.split("~") for entry in self.digests if "~" in entry and "@" not in entry)
        return {name: digest for name, digest in (self.whole | others).items() if digest}

    @functools.cached_property
    def without(self) -> dict[str, dict[str, str]]:
        """Return the digests of what the run would have of functions without a technique, by its variable."""
        found = dict[str, dict[str, str]]()
        for entry in (entry for entry in self.digests if "@" in entry):
            of, _, variable = entry.partition("@")
            name, _, digest = of.partition("~")
            found.setdefault(variable, {})[name] = digest
        return found

    def live_under(self, name: str, off: Iterable[str]) -> str | None:
        """Return the digest of what runs of a function with the techniques of the variables `off` switched off.

        Returns an empty one where nothing of it runs, and None where that is not known.
        """
        forms = [self.without[variable][name] for variable in off if name in self.without.get(variable, {})]
        if len(forms) > 1:
            # Only what several switches leave alike is known under all of them.
            return forms[0] if len({*forms}) == 1 and not forms[0] else None
        return forms[0] if forms else self.live.get(name, "")

    @functools.cached_property
    def switched_on(self) -> set[str]:
        """Return the variables that the published run reads and has not off."""
        return {entry.removeprefix("=") for entry in self.digests if entry.startswith("=")}


@dataclass(frozen=True)
class Likeness:
    """The known script that a script is most like, and the names of the functions in which the two differ."""

    known: KnownScript
    is_relative: bool  # most functions are the same
    differing: tuple[str, ...]
    strange: tuple[str, ...]  # functions that run and that no known script has
    without_effect: set[str]  # variables of the script that nothing reads which runs


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


def entries(tree: ast.Module, values: Mapping[str, str | None]) -> frozenset[str]:
    """Return what the table keeps of a script whose run had the texts `values` of the variables.

    `name:digest` is a function, `name~digest` what the run has of it if that is less, `name~` one that is never called,
    `name~digest@NAME` what it would have with the technique of a variable switched off, and `=NAME` a variable that the
    run reads and has not off.
    """
    tree = without_kernels(tree, values)
    whole = digests(tree)
    live, loads = live_digests(tree, values, whole), loaded_names(tree, values)
    less = {f"{name}~{live.get(name, '')}" for name in whole if live.get(name) != whole[name]}
    on = {name for name in effective(tree, loads) if values.get(name) and not is_off(values[name] or "")}
    for variable in on & switches():
        other = live_digests(tree, {**values, variable: "0"}, whole)
        less |= {f"{n}~{other.get(n, '')}@{variable}" for n in {*live, *other} if other.get(n) != live.get(n)}
    return frozenset({f"{name}:{digest}" for name, digest in whole.items()} | less | {f"={name}" for name in on})


def switches() -> set[str]:
    """Return the variables that switch something on, which a translation leaves out where they are off."""
    of_techniques = {name for name, of in variables_of_techniques().items() if any(v.selects for _, v in of)}
    return {"TTT_ENABLED", *names.SWITCHES, *names.FAMILIES, *names.LORA_TARGETS, *of_techniques}


def likeness(tree: ast.Module, values: Mapping[str, str | None]) -> Likeness | None:
    """Return the known script that shares most functions with a script, None where none is known.

    Two functions are one if they are the same, or if what runs of them is under each script's values of the variables.
    """
    if not known_scripts():
        return None
    tree = without_kernels(tree, values)
    whole = digests(tree)
    live, loads = live_digests(tree, values, whole), loaded_names(tree, values)
    pairs = [(known, _differing(known, whole, live, values)) for known in known_scripts()]
    best, unlike = min(pairs, key=lambda pair: (len(pair[1]), len({*pair[0].whole.items()} ^ {*whole.items()})))
    most = max(len(best.live), len(live))
    bodies = {item for known in known_scripts() for of in (known.whole, known.live) for item in of.items()}
    strange = [name for name in live if not {(name, whole[name]), (name, live[name])} & bodies]
    is_relative = most - len(unlike) >= LEAST_SHARE * most
    unread = {*values} - effective(tree, loads)
    return Likeness(best, is_relative, tuple(sorted(unlike)), tuple(strange), unread)


def _differing(
    known: KnownScript, whole: dict[str, str], live: dict[str, str], values: Mapping[str, str | None]
) -> list[str]:
    """Return the names of the functions in which a script differs from a known one."""
    missing = known.switched_on - {*values}
    off = [name for name in known.without if name in missing or is_zero(values.get(name) or "1")]
    details = tuple(f"{of}_" for name in off if (of := names.switched_by(name)))
    # A part that the record switched on, and the script has no variable for, is no part that is off in both.
    by_what_runs = all(name in off or (details and name.startswith(details)) for name in missing)
    return [
        name
        for name in {*known.whole, *whole}
        if known.whole.get(name) != whole.get(name)
        and not (by_what_runs and known.live_under(name, off) == live.get(name, ""))
        and not any({known.whole.get(name), whole.get(name)} <= {*told} for told in TOLD.get(name, ()))
    ]


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
    added_keys = (key for key in after if key.startswith(tuple(f"tech.{name}." for name in changed.added)))
    # Patterns of tensors are a table, of which a command line gives the whole.
    keys = {"quant.by_name" if key.startswith("quant.by_name.") else key for key in {*changed.settings, *added_keys}}
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


def unsettled(found: Likeness, values: Mapping[str, str | None], named: Iterable[str]) -> list[str]:
    """Return as `NAME=value` what no setting of golf says and the record's run had otherwise.

    `values` are a script's variables under a command line, `named` those among them without a counterpart here.
    Variables of the script without an effect say nothing.
    """
    known, values = found.known, {n: value for n, value in values.items() if n not in found.without_effect}
    pairs = [text.partition("=")[::2] for text in named]
    pairs = [pair for pair in pairs if pair[0] not in found.without_effect]
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
