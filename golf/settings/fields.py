"""Choices, ranges and age of settings, declared at the field. `check_fields` enforces choices and ranges.

loader: str = one_of("sequential", "coprime", "shuffled")  # the first choice is the default
seed: int = number(1337, at_least=0)
layout: list[str] = field(default_factory=list, metadata=among("pack_bits", "byte_planes"))
row_norm: bool = later(False)  # a setting that did not exist in 0.2.0: at its default it is in no variant's id
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from golf.errors import GolfError

ALLOWED, LATER = "allowed", "later"  # keys of a field's metadata
COMPARISONS = {"at least": operator.ge, "above": operator.gt, "at most": operator.le, "below": operator.lt}

MOST_INTEGER = 2**63 - 1  # torch's largest whole number

T = TypeVar("T")


@dataclass(frozen=True)
class Choices:
    """The values that a field may take."""

    names: tuple[str | None, ...]

    def fault(self, value: Any) -> str | None:
        """Return the predicate of a sentence about `value`; None for one of the choices."""
        known = ", ".join("null" if name is None else name for name in self.names)
        return None if value in self.names else f"is not known: choose one of {known}"


@dataclass(frozen=True)
class Range:
    """The numbers that a field may take. A field whose type allows null may also be null."""

    bounds: tuple[tuple[str, float], ...]  # a key of COMPARISONS, and the number to compare with

    def fault(self, value: Any) -> str | None:
        """Return the predicate of a sentence about `value`; None within the range."""
        if value is None or all(COMPARISONS[words](value, bound) for words, bound in self.bounds):
            return None
        return "has to be " + " and ".join(f"{words} {bound:g}" for words, bound in self.bounds)


def one_of(default: T, *others: str) -> T:
    """Declare a field that is `default` or one of `others`."""
    return field(default=default, metadata=among(default, *others))  # type: ignore[arg-type]


def number(default: T, **bounds: float) -> T:
    """Declare a field that is a number within `bounds`: at_least, above, at_most, below."""
    return field(default=default, metadata=within(**bounds))


def later(default: T) -> T:
    """Declare a setting that was added after version 0.2.0; `default` is a value or a declared field.

    At its default the setting has to change nothing, and the default must never change. `written_values` leaves it out
    of config.json and of the id, so that variants and finished runs from before the setting keep their ids.
    """
    made: Any = default if isinstance(default, dataclasses.Field) else field(default=default)
    metadata = {**made.metadata, LATER: True}
    if made.default is dataclasses.MISSING:
        return field(default_factory=made.default_factory, metadata=metadata)
    return field(default=made.default, metadata=metadata)


# Settings of 0.2.0 that have become constants, by their class. `written_values` writes them, so that ids stay.
CONSTANTS: dict[str, dict[str, Any]] = {
    "GPTQConfig": {"block_size": 128, "act_order": True},
    "CalibrationConfig": {"temperature": 0.8, "seq_len": None},
    "PruneConfig": {"codes": "ones", "margin_bytes": 2000},
    "EvalConfig": {"tail": "exact"},
}


def written_values(node: Any) -> dict[str, Any]:
    """Return the settings of the dataclass `node` as plain nested values, without later settings at their default."""
    values = dict(CONSTANTS.get(type(node).__name__, {}))
    for declared in dataclasses.fields(node):
        value = getattr(node, declared.name)
        if not (declared.metadata.get(LATER) and value == default_of(declared)):
            values[declared.name] = _plain(value)
    return values


def default_of(declared: dataclasses.Field[Any]) -> Any:
    """Return the default of a field."""
    made = declared.default_factory
    return declared.default if made is dataclasses.MISSING else made()


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return written_values(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def among(*names: str | None) -> dict[str, Any]:
    """Return the metadata of a list or dict whose values are among `names`."""
    return {ALLOWED: Choices(names)}


def within(**bounds: float) -> dict[str, Any]:
    """Return the metadata of a list of numbers within `bounds` that is never empty."""
    return {ALLOWED: Range(tuple((name.replace("_", " "), bound) for name, bound in bounds.items()))}


def choices(kind: type, name: str) -> tuple[str, ...]:
    """Return the choices that field `name` of the dataclass `kind` declares, null left out."""
    (field,) = (f for f in dataclasses.fields(kind) if f.name == name)
    return tuple(choice for choice in field.metadata[ALLOWED].names if choice is not None)


def check_fields(node: Any, key: str = "", unused: Collection[str] = ()) -> None:
    """Raise `GolfError` for the first value outside what its field declares, in the dataclass `node` and its groups.

    `key` is the full key of `node` with a dot behind it. Groups and settings whose full keys are in `unused` may have
    any value.
    """
    for declared in dataclasses.fields(node):
        full_key, value = f"{key}{declared.name}", getattr(node, declared.name)
        if full_key in unused:
            continue
        if dataclasses.is_dataclass(value):
            check_fields(value, f"{full_key}.", unused)
            continue
        for place, item in enumerate(value if isinstance(value, list) else ()):
            if dataclasses.is_dataclass(item):
                check_fields(item, f"{full_key}[{place}].")
        allowed = declared.metadata.get(ALLOWED)
        if value == [] and isinstance(allowed, Range):
            raise GolfError(f"{full_key} is empty: list at least one number.")
        for item_key, item in _items(full_key, value):
            if item_key in unused:
                continue
            if fault := (allowed and allowed.fault(item)) or _no_number(item):
                raise GolfError(f"{item_key}={item} {fault}.")


def _no_number(value: Any) -> str | None:
    """Return the predicate of a sentence about nan, infinity and whole numbers of over 63 bits; None for others."""
    if isinstance(value, float) and not math.isfinite(value):
        return "is not a finite number"
    return f"has to be at most {MOST_INTEGER}" if isinstance(value, int) and value > MOST_INTEGER else None


def _items(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values to check with their keys: those of a list or dict one by one, a scalar as it is."""
    if isinstance(value, dict):
        # Values with settings of their own are checked where their meaning is known, in `consistency`.
        yield from ((f"{key}.{name}", item) for name, item in value.items() if not isinstance(item, dict))
    elif isinstance(value, list):
        yield from ((key, item) for item in value)
    else:
        yield key, value
