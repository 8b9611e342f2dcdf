"""Proof that every edit of a technique is still there in the finished model.

Loss and gradients do not tell: a technique of two edits changes them also when one of the two is lost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import nn

from golf.settings.config import Config, techniques
from golf.training.model.build import shapeless_model
from golf.training.model.gpt import GPT


class Slot(NamedTuple):
    """An attribute of a module. The module's path is no part of it, because a later technique may wrap the module."""

    module: nn.Module
    name: str


class Edit(NamedTuple):
    """Value that a technique has put into an attribute of a module."""

    technique: str
    slot: Slot
    path: str  # path of the attribute in the model at that time
    part: Any  # new elements of a list, new values of a dict or dataclass by key, or the whole value


def lost_edits(cfg: Config) -> list[str]:
    """Return a sentence for every technique of which a later technique has undone an edit."""
    history = _History({t.name: tuple(f"{path}." for path in t.replaced_modules(cfg)) for t in techniques(cfg)})
    shapeless_model(cfg, history.add)
    return history.lost


class _History:
    """The edits of a model under construction. `add` is called after every technique."""

    def __init__(self, replaced: dict[str, tuple[str, ...]]) -> None:
        self.replaced = replaced  # by technique; the others' edits there are gone on purpose
        self.lost: list[str] = []
        self._edits: list[Edit] = []
        self._values: dict[Slot, Any] = {}

    def add(self, model: GPT, technique: str) -> None:
        """Find what `technique` has edited since the last call, and what it has undone."""
        values = dict(_attributes(model))
        # The call before the first technique only notes what the plain model holds.
        if technique:
            self._find_lost(technique, values, set(model.modules()))
            known = {slot.module for slot in self._values}
            paths = {module: path for path, module in model.named_modules()}
            for slot, value in values.items():
                # The attributes of a module that the technique has made itself are a part of that module.
                part = _new_part(self._values.get(slot), value) if slot.module in known else None
                if part is not None:
                    self._edits.append(Edit(technique, slot, f"{paths[slot.module]}.{slot.name}".lstrip("."), part))
        self._values = values

    def _find_lost(self, by: str, values: dict[Slot, Any], modules: set[nn.Module]) -> None:
        held = [e.part in modules if isinstance(e.part, nn.Module) else _holds(values, e) for e in self._edits]
        lost = [e for e, ok in zip(self._edits, held, strict=True) if not (ok or e.path.startswith(self.replaced[by]))]
        for name in dict.fromkeys(edit.technique for edit in lost):
            paths = [edit.path for edit in lost if edit.technique == name]
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            self.lost.append(f"{name} lost its edit of {paths[0]}{more} to {by}: select one of the two")
        # A lost edit is reported once, with the technique that undid it.
        self._edits = [edit for edit, holds in zip(self._edits, held, strict=True) if holds]


def _attributes(model: nn.Module) -> Iterator[tuple[Slot, Any]]:
    """Yield the attributes of all modules; of lists and dicts copies, because techniques edit those in place."""
    for module in model.modules():
        plain = {name: value for name, value in vars(module).items() if name != "training" and not name.startswith("_")}
        for name, value in {**plain, **module._parameters, **module._modules}.items():
            if isinstance(value, dict) and value and all(isinstance(hooks, list) for hooks in value.values()):
                # Hooks by phase are edited one list at a time.
                yield from ((Slot(module, f"{name}.{phase}"), hooks.copy()) for phase, hooks in value.items())
            else:
                yield Slot(module, name), value.copy() if isinstance(value, list | dict) else value


def _new_part(before: Any, after: Any) -> Any:
    """Return what `after` has and `before` had not; None if nothing."""
    if isinstance(after, list | tuple):
        old = before if isinstance(before, list | tuple) else ()
        return [item for item in after if not _is_in(item, old)] or None
    if isinstance(after, dict) or (_is_settings(after) and type(before) is type(after)):
        items, known = _items(after), _items(before)
        return {key: value for key, value in items.items() if key not in known or not _same(known[key], value)} or None
    return None if _same(before, after) else after


def _holds(values: dict[Slot, Any], edit: Edit) -> bool:
    if edit.slot not in values:
        return False
    value, part = values[edit.slot], edit.part
    if isinstance(part, list):
        return isinstance(value, list | tuple) and all(_is_in(item, value) for item in part)
    if isinstance(part, dict):
        found = _items(value)
        return all(key in found and _same(found[key], wanted) for key, wanted in part.items())
    return _same(value, part) or _is_in(part, _enclosed(value))


def _enclosed(value: Any) -> list[Any]:
    """Return what a function, partial or object holds: a later technique may wrap what an earlier one has set."""
    cells = [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
    partial = [getattr(value, "func", None), *getattr(value, "args", ())]
    return [*cells, *partial, *getattr(value, "__dict__", {}).values()]


def _items(value: Any) -> dict[Any, Any]:
    if isinstance(value, dict):
        return value
    return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)} if _is_settings(value) else {}


def _is_settings(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _is_in(item: Any, items: Any) -> bool:
    return any(_same(item, other) for other in items)


def _same(one: Any, other: Any) -> bool:
    # Tensors and functions are compared by identity: equal numbers do not make the same edit.
    plain = isinstance(one, bool | int | float | str | tuple) or _is_settings(one)
    return one is other or (plain and type(one) is type(other) and bool(one == other))
