"""Numbers and lists in the sentences that people read."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 log` or `3,000 logs`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def listed(items: Sequence[object], at_most: int = 4) -> str:
    """Return the first items and the number of the others, such as `a, b, c, d and 2 more`."""
    first = ", ".join(str(item) for item in items[:at_most])
    return first + (f" and {len(items) - at_most} more" if len(items) > at_most else "")
