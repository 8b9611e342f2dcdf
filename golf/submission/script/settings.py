"""The resolved configuration as the defaults of the dataclasses that declare it, beside their comments and units."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from golf.errors import GolfError
from golf.settings.config import (
    Config,
    RulesConfig,
    TensorQuant,
    changes_loss,
    changes_order,
    changes_score,
    changes_steps,
    has_formats,
    has_stages,
    named_settings,
    rotates,
    tensor_classes,
    trains_apart,
    uses_columns,
    uses_groups,
    uses_trellis,
)
from golf.submission.script.evaluation import Facts, Path
from golf.submission.script.flat import Flat

Groups = dict[str, list[tuple[Path, Any]]]  # class of settings → (path, group) of every group of the class


def submitted(cfg: Config) -> Config:
    """Return `cfg` as a script can carry it: no paths of this machine, no data to build, no checks of fingerprints.

    The seed is the default for every run of a variant, so that all its seeds are one script; SEED sets it. Raises
    `GolfError` for starting weights.
    """
    if cfg.model.init_from:
        raise GolfError("model.init_from starts from weights that a submission does not contain: train from scratch.")
    data = dataclasses.replace(
        cfg.data,
        path=_portable(cfg.data.path, "data/datasets"),
        tokenizer_path=_portable(cfg.data.tokenizer_path, "data/tokenizers"),
        built_from=None,
        fingerprint=None,
    )
    return dataclasses.replace(cfg, data=data, rules=RulesConfig(), drop=[], idea_code={}, note="", seed=Config().seed)


def _portable(path: str, folder: str) -> str:
    # On another machine only the last part of an absolute path means something.
    return f"{folder}/{PurePath(path).name}" if PurePath(path).is_absolute() else path


# Functions that tell whether a run has something of which a script without it has no code.
CHANGES = (changes_steps, changes_loss, changes_order, changes_score, trains_apart, has_stages)


def facts_of(cfg: Config) -> Facts:
    """Return every setting of `cfg` by its path, and the classes that declare them.

    If several groups have one class, an object of the class can be any of them, and each setting has the value of one
    of them. They stand under the class's name.
    """
    groups: dict[str, Path] = {}
    values: dict[Path, list[Any]] = {}
    of_class = _groups_by_class(cfg)
    for kind, own in of_class.items():
        groups[kind] = own[0][0] if len(own) == 1 else (kind,)
        # Patterns of names make more of them from these.
        named = [((), how) for _, how in named_settings(cfg.quant)] if kind == TensorQuant.__name__ else []
        alike = [((kind,), [node for _, node in (*own, *named)])] if len(own) > 1 else []
        for path, nodes in [*alike, *((path, [node]) for path, node in own)]:
            for name in _names(nodes[0]):
                if not dataclasses.is_dataclass(getattr(nodes[0], name)) and name != "tech":
                    values[*path, name] = [tuple(v) if isinstance(v := getattr(n, name), list) else v for n in nodes]
    if not cfg.tech:
        values["tech",] = [()]
    shared = {path for own in of_class.values() if len(own) > 1 for path, _ in own}
    answers: dict[str, Any] = {changes.__name__: False for changes in CHANGES if not changes(cfg)}
    answers |= {} if has_formats(cfg.tech) else {has_formats.__name__: False}
    answers |= {} if uses_groups(cfg.quant) else {"in_groups": False}
    answers |= {} if cfg.tech else {"techniques": ()}
    answers |= {} if any(technique.routes(cfg) for technique in cfg.tech.values()) else {"given_routes": None}
    # Other kernels know where pieces end by themselves, and on a CPU pieces are attended to one by one.
    answers |= {} if cfg.model.attention in ("sdpa", "cudnn") else {"suits_spans": False}
    quant, hows = cfg.quant, [*tensor_classes(cfg.quant).values(), *(how for _, how in named_settings(cfg.quant))]
    tries_one = len(quant.gptq.damping) == 1 and quant.gptq.unused_inputs in ("left_out", "one")
    answers |= {"has_rivals": False} if tries_one and all(how.clip != "search" for how in hows) else {}
    held: dict[str, Any] = {} if has_formats(cfg.tech) else {"own": None}
    held |= {} if uses_columns(quant) else {"has_columns": False, "columns_count": 0}
    held |= {} if uses_trellis(quant) else {"states": 1, "trellis_states": 1}
    held |= {} if rotates(quant) else {"rotated": False, "is_rotated": False}
    return Facts(groups, values, shared, answers=answers, held=held)


def _groups_by_class(cfg: Config) -> Groups:
    found: Groups = {}
    for path, node in _groups(cfg, ()):
        found.setdefault(type(node).__name__, []).append((path, node))
    return found


def _groups(node: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield (path, group) of `node` and all groups in it."""
    yield path, node
    for field in dataclasses.fields(node):
        if dataclasses.is_dataclass(value := getattr(node, field.name)):
            yield from _groups(value, (*path, field.name))
        for place, item in enumerate(value if isinstance(value, list) else ()):
            if dataclasses.is_dataclass(item):
                yield (*path, field.name, str(place)), item
    for name, technique in node.tech.items() if isinstance(node, Config) else ():
        yield ("tech", name), technique


def _names(node: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(node)]


def write_settings(flat: Flat, cfg: Config) -> None:
    """Put the values of `cfg` into the classes of `flat`, in place.

    Raises `GolfError` for a technique whose class had to be renamed beside another class of its name.
    """
    of_class, held = _groups_by_class(cfg), {s.name for s in flat.statements() if isinstance(s, ast.ClassDef)}
    for name, technique in cfg.tech.items():
        if (kind := type(technique).__name__) not in held:
            raise GolfError(f"The class {kind} of the technique {name} is called like another one: rename the class.")
    names = {type(technique).__name__: name for name, technique in cfg.tech.items()}
    for statement in flat.statements():
        if isinstance(statement, ast.ClassDef) and statement.name in names:
            # A script has no registry, so its techniques are not registered.
            statement.decorator_list = [d for d in statement.decorator_list if "technique(" not in ast.unparse(d)]
            statement.body.insert(0, ast.parse(f"name = {names[statement.name]!r}").body[0])
        if isinstance(statement, ast.ClassDef) and statement.name in of_class:
            # Every default becomes a plain value, or the choices that a field declares would come into the script. Of a
            # class with several groups the first one gives the defaults; the others name what differs.
            _, node = of_class[statement.name][0]
            for part in statement.body:
                if isinstance(part, ast.AnnAssign) and ast.unparse(part.target) in _names(node):
                    part.value = _default(ast.unparse(part.target), node, of_class)


def _default(name: str, node: Any, of_class: Groups) -> ast.expr:
    """Return the expression for the default of the setting `name` of `node`."""
    value = getattr(node, name)
    if isinstance(value, list | dict) and not value:
        text = f"field(default_factory={type(value).__name__})"
    elif isinstance(node, Config) and name == "tech":
        items = ", ".join(f"{key!r}: {type(technique).__name__}()" for key, technique in value.items())
        text = f"field(default_factory=lambda: {{{items}}})"
    elif dataclasses.is_dataclass(value):
        kind = type(value).__name__
        first = of_class[kind][0][1]
        differing = [n for n in _names(value) if getattr(value, n) != getattr(first, n)]
        given = ", ".join(f"{n}={getattr(value, n)!r}" for n in differing)
        text = f"field(default_factory={f'lambda: {kind}({given})' if given else kind})"
    elif isinstance(value, list | dict):
        text = f"field(default_factory=lambda: {value!r})"
    else:
        text = repr(value)
    return ast.parse(text, mode="eval").body
