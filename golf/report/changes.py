"""What makes two variants different, in words: techniques taken out or put in, settings changed."""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from golf.paths import ROOT
from golf.settings.dropping import OFF

MISSING = object()
Flat = Mapping[str, Any]  # `group.key` → value, as golf.run.identity makes it


class Declared(NamedTuple):
    """Which techniques one cannot be without, and which it cannot be with."""

    requires: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Change:
    """From a reference to a variant."""

    removed: tuple[str, ...]  # techniques
    added: tuple[str, ...]
    settings: Mapping[str, Any]  # new values of other keys, those of techniques in both included

    @property
    def things(self) -> list[str]:
        """What changed, one entry for each thing that can be switched on its own."""
        keys, named = set(self.settings), []
        for name, off in OFF.items():
            if keys & set(off):
                named.append(name)
                keys -= set(off)
        return [*self.removed, *self.added, *named, *sorted(keys)]

    def __str__(self) -> str:
        parts = [f"without {name}" for name in self.removed] + [f"with {name}" for name in self.added]
        return ", ".join([*parts, *(f"{key}={written(value)}" for key, value in self.settings.items())])


def written(value: Any) -> str:
    """A value as an override has it."""
    if value is None or value is MISSING:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(written(v) for v in value)}]"
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def change(reference: Flat, variant: Flat) -> Change:
    """What turns `reference` into `variant`."""
    before, after = techniques_of(reference), techniques_of(variant)
    in_one_only = before ^ after
    keys = [
        key
        for key in sorted(set(reference) | set(variant))
        if reference.get(key, MISSING) != variant.get(key, MISSING)
        and _technique(key) not in in_one_only
        and key != "tech"
    ]
    settings = {key: variant.get(key, MISSING) for key in keys}
    return Change(tuple(sorted(before - after)), tuple(sorted(after - before)), settings)


def techniques_of(flat: Flat) -> set[str]:
    """Names of the selected techniques; one without settings is a key of its own."""
    return {name for name in map(_technique, flat) if name}


def differing_keys(flats: Sequence[Flat]) -> list[str]:
    """Keys that are not the same in all."""
    keys = sorted(set().union(*flats))
    return [key for key in keys if any(flat.get(key, MISSING) != flats[0].get(key, MISSING) for flat in flats)]


def why_not_separable(reference: Flat, variant: Flat) -> str:
    """Why a row of an ablation says nothing about one thing alone; empty if it does."""
    found = change(reference, variant)
    things = found.things
    if not things:
        return "the same variant as the reference: nothing is different"
    if len(things) == 1:
        return ""
    return f"changes {' and '.join(things)} together{_because(things)}"


def required_by(name: str, selected: set[str]) -> list[str]:
    """The techniques among `selected` that cannot be without `name`."""
    declared = declarations()
    return sorted(other for other in selected if name in declared.get(other, Declared()).requires)


@functools.cache
def declarations() -> dict[str, Declared]:
    """What every technique declares, read from the source: importing them would import torch."""
    found = {}
    for path in sorted((ROOT / "golf" / "techniques").glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and (name := _registered_name(node)):
                found[name] = Declared(_literal(node, "requires"), _literal(node, "conflicts"))
    return found


def _registered_name(node: ast.ClassDef) -> str:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "technique":
            return str(ast.literal_eval(decorator.args[0]))
    return ""


def _literal(node: ast.ClassDef, attribute: str) -> tuple[str, ...]:
    for statement in node.body:
        if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", "") == attribute:
            return tuple(ast.literal_eval(statement.value))
    return ()


def _technique(key: str) -> str:
    return key.split(".")[1] if key.startswith("tech.") else ""


def _because(things: list[str]) -> str:
    """The declaration that ties two of them, if there is one."""
    for name in things:
        declared = declarations().get(name, Declared())
        for other in things:
            if other in declared.requires:
                return f": {name} requires {other}"
            if other in declared.conflicts:
                return f": {name} and {other} exclude each other"
    return ""
