"""The resolved configuration as the defaults of the dataclasses that declare it, beside their comments and units."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from golf.artifact.script.facts import Facts
from golf.artifact.script.flat import Flat
from golf.errors import GolfError
from golf.settings.config import Config, RulesConfig


def submitted(cfg: Config) -> Config:
    """`cfg` as a script can carry it: no paths of this machine, no data to build, no check of other people's copies.

    The seed is everybody's default, so that all seeds of a variant are one script; SEED sets it.
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
    return dataclasses.replace(cfg, data=data, rules=RulesConfig(), drop=[], note="", seed=Config().seed)


def _portable(path: str, folder: str) -> str:
    return f"{folder}/{PurePath(path).name}" if PurePath(path).is_absolute() else path


def facts_of(cfg: Config) -> Facts:
    """Every setting of `cfg` by its path, and the classes that declare them.

    Of a class that several groups have, that is known which is the same in all of them, under the class's name.
    """
    groups: dict[str, tuple[str, ...]] = {}
    values: dict[tuple[str, ...], Any] = {}
    nodes = _by_class(cfg)
    for kind, own in nodes.items():
        groups[kind] = own[0][0] if len(own) == 1 else (kind,)
        alike = [((kind,), own[0][1], _same_in_all(own))] if len(own) > 1 else []
        for path, node, names in [*alike, *((path, node, _names(node)) for path, node in own)]:
            for name in names:
                value = getattr(node, name)
                if not dataclasses.is_dataclass(value) and name != "tech":
                    values[*path, name] = tuple(value) if isinstance(value, list) else value
    shared = {path for own in nodes.values() if len(own) > 1 for path, _ in own}
    return Facts(groups, values, shared, given=_given(cfg))


def _given(cfg: Config) -> dict[str, Any]:
    """What functions return under `cfg` that no reading of them tells."""
    found: dict[str, Any] = {"suits_eager_cpu": False}  # its functions are worth their bytes on a CPU only
    return found if cfg.tech else {**found, "techniques": ()}


def _by_class(cfg: Config) -> dict[str, list[tuple[tuple[str, ...], Any]]]:
    """Name of a settings' class → (path, group) of every group of it."""
    found: dict[str, list[tuple[tuple[str, ...], Any]]] = {}
    for path, node in _groups(cfg, ()):
        found.setdefault(type(node).__name__, []).append((path, node))
    return found


def _names(node: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(node)]


def _same_in_all(groups: list[tuple[tuple[str, ...], Any]]) -> list[str]:
    first = groups[0][1]
    return [name for name in _names(first) if all(getattr(node, name) == getattr(first, name) for _, node in groups)]


def _groups(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, node
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if dataclasses.is_dataclass(value):
            yield from _groups(value, (*path, field.name))
    for name, technique in node.tech.items() if isinstance(node, Config) else ():
        yield ("tech", name), technique


def write_settings(flat: Flat, cfg: Config) -> None:
    """Put the values of `cfg` into the classes of `flat`, in place."""
    nodes = _by_class(cfg)
    for statement in flat.statements():
        if isinstance(statement, ast.ClassDef) and statement.name in nodes:
            own = nodes[statement.name]
            written = set(_same_in_all(own))  # of several groups, the rest is said where they are made
            for part in statement.body:
                if isinstance(part, ast.AnnAssign) and (name := ast.unparse(part.target)) in _names(own[0][1]):
                    # Every default becomes a plain value: `one_of(…)` would bring all choices into the script.
                    node = own[0][1] if name in written else type(own[0][1])()
                    part.value = _default(name, node, nodes)


def _default(name: str, node: Any, nodes: dict[str, list[tuple[tuple[str, ...], Any]]]) -> ast.expr:
    value = getattr(node, name)
    if isinstance(value, list | dict) and not value:
        return _expression(f"field(default_factory={type(value).__name__})")
    if isinstance(node, Config) and name == "tech":
        items = ", ".join(f"{key!r}: {type(technique).__name__}()" for key, technique in value.items())
        return _expression(f"field(default_factory=lambda: {{{items}}})")
    if dataclasses.is_dataclass(value):
        kind = type(value).__name__
        own = [n for n in _names(value) if n not in _same_in_all(nodes[kind])]
        given = ", ".join(f"{n}={getattr(value, n)!r}" for n in own)
        return _expression(f"field(default_factory={f'lambda: {kind}({given})' if given else kind})")
    if isinstance(value, list | dict):
        return _expression(f"field(default_factory=lambda: {value!r})")
    return _expression(repr(value))


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
