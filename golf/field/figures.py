"""Numbers as people write them, each with the place that it was read at."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# No further digits may follow a number: `2.9.1` is a version, and no part of it is a figure.
NUMBER = (
    # A match does not begin within digits and gives none of them back, or it would take the square of their number.
    r"[-+]?(?<!\d)(?:(?:nan|inf(?:inity)?)(?![a-z])|\d{1,3}(?:,\d{3})++(?![\d,])(?:\.\d++)?"
    r"|(?:\d++(?:_\d{3})*+(?:\.\d*+)?|\.\d++)(?:e[-+]?\d++)?)(?![\w.]{0,60}\d)(?!,\d)"
)
PRINTED_DECIMALS_ERROR = 2e-8  # error of a mean of numbers with eight decimals, as logs print them
ABOUT = ("~", "≈")  # before a number: its zeros at the end are no digits
_WHOLE = re.compile(rf"\s*+[~≈=<>]*+\s*+({NUMBER})\s*+([a-z%/]*+)\s*+(?:(?:±|\+/-|\+-).*|\(.*\))?\s*", re.IGNORECASE)
_SECONDS_PER = dict.fromkeys(("s", "sec", "secs", "seconds"), 1.0) | dict.fromkeys(("m", "min", "minutes"), 60.0)
_SECONDS_PER |= {"h": 3600.0, "ms": 1e-3}


@dataclass(frozen=True)
class Figure:
    """A number with its source, such as `train.log:210` or `submission.json: seed_results.42.val_bpb`."""

    value: float
    source: str
    text: str = ""  # the number as written; its digits tell how exact it is

    @property
    def unit_in_last_place(self) -> float:
        """The value of a one in the last written digit: 0.0001 of 1.2271."""
        if self.text.startswith(ABOUT):
            # Of `~15,900,000` the zeros come from rounding: the last digit that was meant is the 9.
            digits = self.text.strip("".join(ABOUT)).replace(",", "")
            return float(10.0 ** (len(digits) - len(digits.rstrip("0")))) if digits.isdigit() else self._decimal_unit
        return self._decimal_unit

    @property
    def _decimal_unit(self) -> float:
        mantissa, _, exponent = self.text.strip("".join(ABOUT)).lower().replace(",", "").replace("_", "").partition("e")
        decimals = len(mantissa.partition(".")[2])
        return float(10.0 ** ((int(exponent) if re.fullmatch(r"[-+]?\d{1,3}", exponent) else 0) - decimals))

    def agrees_with(self, other: float | Figure) -> bool:
        """Tell whether both are one number, rounded or cut to the digits of the one with fewer."""
        value = other.value if isinstance(other, Figure) else other
        unit = other.unit_in_last_place if isinstance(other, Figure) and other.text else 0.0
        # A difference of one whole unit is another number; the factor keeps float error from hiding it.
        return abs(self.value - value) < max(max(self.unit_in_last_place, unit) * (1 - 1e-6), PRINTED_DECIMALS_ERROR)


def mean_of(figures: Sequence[Figure]) -> Figure:
    """Return the mean of figures, with the digits of the one with the fewest."""
    coarsest = max((f for f in figures if f.text), key=lambda f: f.unit_in_last_place, default=None)
    return Figure(statistics.fmean(f.value for f in figures), "", coarsest.text if coarsest else "")


def parse_number(text: str) -> float | None:
    """Return the number in a text such as `15,863,489`, `1e3`, `nan` or `1.1194 ± 0.0006`; None without one."""
    match = _WHOLE.fullmatch(text)
    return None if match is None or match[2] else _value(match[1])


def parse_seconds(text: str) -> float | None:
    """Return the seconds in a text such as `600038ms`, `9.9m` or `508.8s`; None without a unit, or if negative."""
    match = _WHOLE.fullmatch(text)
    unit = match[2].lower() if match else ""
    value = _value(match[1]) if match and unit in _SECONDS_PER else None
    if value is None or not 0 <= value < math.inf:
        return None
    # 600038 / 1000 is the double next to 600.038; 600038 * 0.001 is not.
    return value / 1000 if unit == "ms" else value * _SECONDS_PER[unit]


def as_figure(value: Any, source: str) -> Figure | None:
    """Return a JSON value as a figure, None if it is no number. Strings may hold numbers."""
    # Booleans are integers in Python: `true` would be read as 1.
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        number = _finite_size(value)
        return None if number is None else Figure(number, source, repr(value))
    if isinstance(value, str) and len(value) < 80 and (number := parse_number(value)) is not None:
        match, sign = _WHOLE.fullmatch(value), value.lstrip()[:1]
        # `<600` is a bound, not a measured number.
        if sign in "<>":
            return None
        return Figure(number, source, (sign if sign in ABOUT else "") + (match[1] if match else value))
    return None


def _value(text: str) -> float | None:
    """Return the number that a text with separators stands for, as an int if it has no decimals."""
    plain = text.replace(",", "").replace("_", "")
    # Python refuses integers of thousands of digits; forty are too many to be meant already.
    try:
        return _finite_size(int(plain[:40]) if plain.lstrip("+-").isdigit() else float(plain))
    except (ValueError, OverflowError):
        return None


def _finite_size(value: float) -> float | None:
    """Return the number, None for an integer too large to be meant as one."""
    return value if isinstance(value, float) or abs(value) < 10**18 else None


def whole(value: float | None) -> int | None:
    """Return a number as an int, None if it is no integer."""
    return int(value) if value is not None and math.isfinite(value) and value == int(value) else None
