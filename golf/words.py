"""Numbers and lists in the sentences that people read, and printing them in any encoding."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import io
import json
import math
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 log`, `3,000 logs` or `2 tries`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun[:-1]}ies" if noun.endswith("try") else f"{number:,} {noun}s"


def duration(seconds: float) -> str:
    """Return a time such as `80 s`, `14 min` or `2.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def listed(items: Sequence[object], at_most: int = 4) -> str:
    """Return the first items and the number of the others, such as `a, b, c, d and 2 more`."""
    first = ", ".join(str(item) for item in items[:at_most])
    return first + (f" and {len(items) - at_most} more" if len(items) > at_most else "")


def significant(value: float, decimals: int = 4) -> str:
    """Return a number with these decimals, or with as many as show its first two digits, such as `0.000012`."""
    return f"{value:.{decimals if not value else max(decimals, 1 - math.floor(math.log10(abs(value))))}f}"


@contextlib.contextmanager
def told_on_stderr() -> Iterator[None]:
    """Send what this process and its children print to stderr, so that stdout is left for an answer."""
    sys.stdout.flush()
    kept = os.dup(1)
    # Ranks are processes of their own, and know the descriptor alone.
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def answer(value: object) -> str:
    """Return the JSON of a command for programs: dataclasses as objects, paths as text, nan and infinity as null."""
    return json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in value]
    # Numbers of numpy are floats for Python, and JSON has no nan.
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    # Any other object has a text, too, which tells a program nothing.
    raise TypeError(f"{type(value).__name__} is no value of JSON")


def as_override(value: Any) -> str:
    """Return the value of a setting as it is written on a command line, numbers with at most 12 digits."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{','.join(map(as_override, value))}]"
    # A scale computes settings in binary, which can turn 0.9 into 0.8999999999999999.
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def text_width(plain: int) -> int:
    """Return the characters in a line of what is printed: what `COLUMNS` says, else the terminal's, else `plain`."""
    from rich.console import Console

    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    return Console(_environ={}).width if sys.stdout.isatty() else plain


def print_in_any_encoding() -> None:
    """Let standard output and error show a question mark for what their encoding lacks, as Latin-1 lacks `…`.

    Otherwise a table, or the result of a finished run, ends in a traceback. Where the caller has closed an output, what
    is printed goes nowhere.
    """
    nowhere = functools.partial(Path(os.devnull).open, "w", encoding="utf-8")
    sys.stdout, sys.stderr = sys.stdout or nowhere(), sys.stderr or nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def outlive_readers() -> None:
    """Let what is printed go nowhere once a terminal or the reader of a pipe has gone, as `head` and a killed `tee`.

    Otherwise the next line that it prints would end a training run.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and (stream.isatty() or _is_pipe(stream)):
            raw = _Unread(stream.fileno(), "w", closefd=False)
            stream.flush()
            buffer, by_line = io.BufferedWriter(raw), stream.line_buffering
            setattr(sys, name, io.TextIOWrapper(buffer, stream.encoding, stream.errors, line_buffering=by_line))


def _is_pipe(stream: io.TextIOWrapper) -> bool:
    return stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)


class _Unread(io.FileIO):
    """A pipe or terminal that takes everything, also when nobody reads it any more."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            # A terminal that was closed gives EIO.
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return len(data)


def signed(value: float) -> str:
    """Return a difference with its sign and four decimals, or with two digits if these are zeros; zero has no sign."""
    if abs(value) <= 1e-9:
        return "0.0000"
    size = f"{abs(value):.4f}"
    return ("−" if value < 0 else "+") + (size if size.strip("0.") else significant(abs(value)))


def interval_text(bounds: tuple[float, float]) -> str:
    """Return an interval such as `−0.0066 to −0.0046`."""
    return f"{signed(bounds[0])} to {signed(bounds[1])}"
