"""Slots: attributes of a model that hold one thing each, so that only one technique may set them."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from torch import nn

from golf.errors import GolfError

RECORD = "_slots_set"  # attribute of a module while its model is built: (slot, field) → `Setting`


class Setting(NamedTuple):
    """Value that a technique gave to a slot or to one field of it, with the name of the technique."""

    value: Any
    by: str


def set_slot(owner: nn.Module, slot: str, value: Any, by: str) -> None:
    """Set the attribute `slot` of `owner` for the technique `by`.

    Raises `GolfError` if another technique has set it, or a part of the module that it holds.
    """
    held = getattr(owner, slot)
    parts = held.modules() if isinstance(held, nn.Module) else ()
    # Replacing a module would also take away what other techniques have set within it.
    lost = [setting for part in parts for setting in part.__dict__.get(RECORD, {}).values()]
    _record(owner, slot, "", Setting(value, by), lost)
    setattr(owner, slot, value)


def set_fields(owner: nn.Module, slot: str, by: str, **values: Any) -> None:
    """Set fields of the frozen dataclass that `slot` of `owner` holds. Techniques may set different fields of it."""
    for name, value in values.items():
        _record(owner, slot, name, Setting(value, by), [])
    setattr(owner, slot, dataclasses.replace(getattr(owner, slot), **values))


def check_slots(model: nn.Module) -> None:
    """Raise `GolfError` for the first slot that does not hold what its technique set. Forgets who set them."""
    for owner in model.modules():
        for (slot, name), setting in owner.__dict__.pop(RECORD, {}).items():
            held = getattr(owner, slot)
            if (getattr(held, name) if name else held) is not setting.value:
                raise GolfError(
                    f"{setting.by} set {_called(owner, slot, name)}, and a later edit replaced that without set_slot: "
                    "drop one of the techniques that edit it."
                )


def _record(owner: nn.Module, slot: str, name: str, setting: Setting, lost: list[Setting]) -> None:
    taken = owner.__dict__.setdefault(RECORD, {})
    same = [other for (held, part), other in taken.items() if held == slot and ("" in (part, name) or part == name)]
    rivals = [*lost, *same]
    if rivals:
        both = f"{rivals[0].by} and {setting.by} both set {_called(owner, slot, name)}"
        raise GolfError(f"{both}, which holds one thing: drop one of them.")
    taken[slot, name] = setting


def _called(owner: nn.Module, slot: str, name: str) -> str:
    return f"{type(owner).__name__}.{slot}" + (f".{name}" if name else "")
