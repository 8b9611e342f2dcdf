"""The resolved configuration as the defaults of the dataclasses that declare it, beside their comments and units."""

from __future__ import annotations

import ast
import dataclasses
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
    has_stages,
    named_settings,
    rotates,
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


LONGEST = 100  # characters of a comment behind a setting
# Functions that tell whether a run has something of which a script without it has no code.
CHANGES = (changes_steps, changes_loss, changes_order, changes_score, has_stages)
# A script is made for GPUs, so the functions that are faster on a CPU only are not worth their bytes.
NEVER_TRUE = ("suits_eager_cpu", "attends_in_float32")


def facts_of(cfg: Config) -> Facts:
    """Return every setting of `cfg` by its path, and the classes that declare them.

    If several groups have one class, an object of the class can be any of them, and each setting has the value of one
    of them. They stand under the class's name.
    """
    groups: dict[str, Path] = {}
    values: dict[Path, list[Any]] = {}
    for kind, own in _groups_by_class(cfg).items():
        groups[kind] = own[0][0] if len(own) == 1 else (kind,)
        # Patterns of names make more of them from these.
        named = [how for _, how in named_settings(cfg.quant)] if kind == TensorQuant.__name__ else []
        alike = [((kind,), [*(node for _, node in own), *named])] if len(own) > 1 else []
        for path, nodes in [*alike, *((path, [node]) for path, node in own)]:
            for name in _names(nodes[0]):
                if not dataclasses.is_dataclass(getattr(nodes[0], name)) and name != "tech":
                    values[*path, name] = [tuple(v) if isinstance(v := getattr(n, name), list) else v for n in nodes]
    if not cfg.tech:
        values["tech",] = [()]
    # A script has no registry.
    results: dict[str, Any] = {**dict.fromkeys(NEVER_TRUE, False), "technique_types": {}}
    results |= {changes.__name__: False for changes in CHANGES if not changes(cfg)}
    results |= {} if uses_groups(cfg.quant) else {"in_groups": False}
    results |= {} if cfg.tech else {"techniques": ()}
    results |= {} if any(technique.routes(cfg) for technique in cfg.tech.values()) else {"given_routes": None}
    held: dict[str, Any] = {} if any(t.number_format() is not None for t in cfg.tech.values()) else {"own": None}
    held |= {} if uses_columns(cfg.quant) else {"has_columns": False, "columns_count": 0}
    held |= {} if uses_trellis(cfg.quant) else {"states": 1, "trellis_states": 1}
    held |= {} if rotates(cfg.quant) else {"rotated": False, "is_rotated": False}
    return Facts(groups, values, results, held=held)


def _groups_by_class(cfg: Config) -> Groups:
    found: Groups = {}
    pending: list[tuple[Path, Any]] = [((), cfg)]
    while pending:
        path, node = pending.pop(0)
        found.setdefault(type(node).__name__, []).append((path, node))
        parts = {name: getattr(node, name) for name in _names(node)}
        for name, value in list(parts.items()):
            items = value if name == "tech" else dict(enumerate(value)) if isinstance(value, list) else {}
            parts |= {f"{name}.{key}": item for key, item in items.items()}
        inner = [((*path, *name.split(".")), value) for name, value in parts.items()]
        pending += [(place, value) for place, value in inner if dataclasses.is_dataclass(value)]
    return found


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
            statement.decorator_list = [d for d in statement.decorator_list if "technique(" not in ast.unparse(d)]
            statement.body.insert(0, ast.parse(f"name = {names[statement.name]!r}").body[0])
        if isinstance(statement, ast.ClassDef) and statement.name in of_class:
            # Every default becomes a plain value, or the choices that a field declares would come into the script. Of a
            # class with several groups the first one gives the defaults; the others name what differs.
            _, node = of_class[statement.name][0]
            for part in statement.body:
                if isinstance(part, ast.AnnAssign) and (name := ast.unparse(part.target)) in _names(node):
                    part.value = ast.parse(_default(getattr(node, name), of_class), mode="eval").body
                    shorten_comment(part)


def shorten_comment(part: ast.stmt) -> None:
    """Leave of the comment on a setting what it is: `# order of the text; a: … | b: …` has one of them in a script."""
    about = " ".join(line.removeprefix("#").strip() for line in getattr(part, "above", ())).partition("; ")[0]
    if 0 < len(about) <= LONGEST:
        part.above, part.behind = [], [f"# {about}"]  # type: ignore[attr-defined]


def _default(value: Any, of_class: Groups) -> str:
    """Return the expression for the default of a setting with this value."""
    text = _written(value, of_class)
    if not isinstance(value, list | dict) and not dataclasses.is_dataclass(value):
        return text
    return f"field(default_factory={text.removesuffix('()') if text.endswith('()') else f'lambda: {text}'})"


def _written(value: Any, of_class: Groups) -> str:
    """Return the expression that makes `value`."""
    if isinstance(value, list | dict) and not value:
        return f"{type(value).__name__}()"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_written(item, of_class)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_written(item, of_class) for item in value) + "]"
    if not dataclasses.is_dataclass(value):
        return repr(value)
    _, first = of_class[type(value).__name__][0]
    differing = {name: getattr(value, name) for name in _names(value) if getattr(value, name) != getattr(first, name)}
    return f"{type(value).__name__}({', '.join(f'{name}={item!r}' for name, item in differing.items())})"
