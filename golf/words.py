"""Numbers and lists in the sentences that people read, and printing them in any encoding."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 log` or `3,000 logs`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def listed(items: Sequence[object], at_most: int = 4) -> str:
    """Return the first items and the number of the others, such as `a, b, c, d and 2 more`."""
    first = ", ".join(str(item) for item in items[:at_most])
    return first + (f" and {len(items) - at_most} more" if len(items) > at_most else "")


def print_in_any_encoding() -> None:
    """Let standard output and error show a question mark for what their encoding lacks, as Latin-1 lacks `…`.

    Otherwise a table, or the result of a finished run, ends in a traceback.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
