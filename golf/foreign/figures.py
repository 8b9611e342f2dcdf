"""Numbers as people write them, each with the place it was read at."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

NUMBER = (
    r"[-+]?(?:(?:nan|inf(?:inity)?)(?![a-z])|\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?"
    r"|(?:\d+(?:_\d{3})*(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?)(?![\w.]*\d)(?!,\d)"
)
AS_PRINTED = 2e-8  # logs have eight decimals: a mean of them is no more exact, whatever it is written with
_WHOLE = re.compile(rf"\s*[~≈=<>]*\s*({NUMBER})\s*([a-z%/]*)\s*(?:(?:±|\+/-|\+-).*|\(.*\))?\s*", re.IGNORECASE)
_UNITS = {
    "ms": 0.0,
    "s": 1.0,
    "sec": 1.0,
    "secs": 1.0,
    "seconds": 1.0,
    "m": 60.0,
    "min": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
}


@dataclass(frozen=True)
class Figure:
    """A number and where it is from, such as `train.log:210` or `submission.json: seed_results.42.val_bpb`."""

    value: float
    source: str
    text: str = ""  # as written: its digits tell how exact it is

    @property
    def unit_in_last_place(self) -> float:
        """What the last digit that was written stands for; 1.2271 → 0.0001."""
        mantissa, _, exponent = self.text.lower().replace(",", "").replace("_", "").partition("e")
        decimals = len(mantissa.partition(".")[2])
        shift = int(exponent) if re.fullmatch(r"[-+]?\d{1,3}", exponent) else 0
        return float(10.0 ** (shift - decimals))

    def agrees_with(self, other: float | Figure) -> bool:
        """Whether `other` is this number, rounded or cut to the digits written here or, if those are fewer, there."""
        value = other.value if isinstance(other, Figure) else other
        unit = other.unit_in_last_place if isinstance(other, Figure) and other.text else 0.0
        return abs(self.value - value) < max(max(self.unit_in_last_place, unit) * (1 - 1e-6), AS_PRINTED)


def mean_of(figures: Sequence[Figure]) -> Figure:
    """Their mean, no more exact than the one with the fewest digits."""
    coarsest = max((f for f in figures if f.text), key=lambda f: f.unit_in_last_place, default=None)
    return Figure(statistics.fmean(f.value for f in figures), "", coarsest.text if coarsest else "")


def parse_number(text: str) -> float | None:
    """`15,863,489`, `1_000`, `1e3`, `nan`, `1.1194 ± 0.0006`, `15.9`; None for what is not just a number."""
    match = _WHOLE.fullmatch(text)
    return None if match is None or match[2] else _value(match[1])


def parse_seconds(text: str) -> float | None:
    """`600038ms`, `9.9m`, `508.8s`; a bare number is None: its unit is not known."""
    match = _WHOLE.fullmatch(text)
    unit = _UNITS.get(match[2].lower()) if match else None
    value = _value(match[1]) if match and unit is not None else None
    if value is None or unit is None:
        return None
    return value * unit if unit else value / 1000  # a division rounds as the decimal would


def as_figure(value: Any, source: str) -> Figure | None:
    """A JSON value as a figure; None for what is no number. Strings may hold numbers."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        number = _finite_size(value)
        return None if number is None else Figure(number, source, repr(value))
    if isinstance(value, str) and len(value) < 80 and (number := parse_number(value)) is not None:
        match = _WHOLE.fullmatch(value)
        return Figure(number, source, match[1] if match else value)
    return None


def _value(text: str) -> float | None:
    plain = text.replace(",", "").replace("_", "")
    try:
        return _finite_size(int(plain[:40]) if plain.lstrip("+-").isdigit() else float(plain))
    except (ValueError, OverflowError):
        return None


def _finite_size(value: float) -> float | None:
    """Integers of thousands of digits are not meant as numbers."""
    try:
        return float(value) if not isinstance(value, int) else int(value) if abs(value) < 10**18 else None
    except OverflowError:
        return None


def whole(value: float | None) -> int | None:
    """As an int where it is one."""
    return int(value) if value is not None and math.isfinite(value) and value == int(value) else None
