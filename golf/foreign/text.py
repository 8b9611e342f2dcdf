"""Lines of any text file, in bounded memory: compressed, in odd encodings, cut off or with junk in it."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

CHUNK_BYTES = 1 << 18
LONGEST_LINE = 1 << 16  # characters; what is longer is cut there
ENDINGS = (".gz", ".bz2", ".xz")  # of compressed files; how one is opened is told by its first bytes
BROKEN = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)
_MAGIC = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
_BOMS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
UNREADABLE = "\ufffd"
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff]")
_BINARY = bytes(set(range(256)) - set(range(32, 256)) - set(b"\t\n\r\f\x1b\x08"))
# What launchers and loggers put before a line: rank, process, container, time, level.
_PREFIX = re.compile(
    r"\s*(?:"
    r"\[(?:rank|default)\s*:?\s*(?P<a>\d+)\]\s*:?\s*"
    r"|rank\s*(?P<b>\d+)\s*[:|]\s+"
    r"|(?P<c>\d{1,4}):\s+(?=[A-Za-z\d])"
    r"|\[(?P<d>\d{1,4})\]\s*:?\s+(?=\w)"
    r"|\([\w.]+ pid=\d+[^)]*\)\s*"
    r"|[\w.-]+\s+\|\s+(?=(?:step|warmup|final|\d+/\d+|[a-z_]+:))"
    r"|(?:stdout|stderr|wandb|INFO|INFO:[\w.]+)\s*[:|]\s*"
    r"|1[67]\d{8}(?:\.\d+)?\s+"
    r"|\[?20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?(?:\s*[-|:]?\s*\[?(?:INFO|DEBUG)\]?\b)?"
    r"\s*[-|:]*\s*"
    r"|\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?\s+"
    r")"
)
_BEFORE_LINES = ("rank", "stdout", "stderr", "wandb", "INFO")


class UnreadableError(Exception):
    """The reason why a file has no lines."""


class TextFile:
    """Iterates (line number, text); afterwards `problem` says what was lost, if anything."""

    def __init__(self, path: Path):
        self.path = path
        self.problem = ""

    def __iter__(self) -> Iterator[tuple[int, str]]:
        try:
            with _opened(self.path) as file:
                yield from self._lines(file)
        except OSError as error:
            raise UnreadableError(f"cannot be read ({error.strerror or error})") from error

    def _lines(self, file: IO[bytes]) -> Iterator[tuple[int, str]]:
        """A carriage return ends a line too, but only a line feed counts: numbers are those an editor shows."""
        number, rest, skipping = 1, "", False
        decode = None
        while True:
            try:
                chunk = file.read(CHUNK_BYTES)
            except BROKEN as error:
                self.problem = f"the compressed data ends or breaks after line {number} ({type(error).__name__})"
                break
            if not chunk:
                break
            decode = decode or codecs.getincrementaldecoder(_encoding(chunk))(errors="replace").decode
            *whole, rest = (rest + decode(chunk)).split("\n")
            for line in whole:
                if not skipping:
                    yield from ((number, piece) for piece in _pieces(line))
                number, skipping = number + 1, False
            if skipping:
                rest = ""
            elif len(rest) > LONGEST_LINE:
                head, _, tail = rest.rpartition("\r")
                yield from ((number, piece) for piece in _pieces(head or rest))
                rest, skipping = (tail, False) if head and len(tail) <= LONGEST_LINE else ("", True)
        if rest and not skipping:
            yield from ((number, piece) for piece in _pieces(rest))


def _pieces(line: str) -> Iterator[str]:
    for piece in line.split("\r") if "\r" in line else (line,):
        text = piece[:LONGEST_LINE]
        if "\x1b" in text:
            text = _removed(_ESCAPES, text)
        if not text.isprintable():
            text = _removed(_CONTROL, text)
        if text and not text.isspace():
            yield text


def _removed(pattern: re.Pattern[str], text: str) -> str:
    """`text` without matches of `pattern`; within a number one leaves a mark, so that it does not become another."""
    return pattern.sub(lambda m: UNREADABLE if _splits_a_number(m) else "", text)


def _splits_a_number(match: re.Match[str]) -> bool:
    before, after = match.string[: match.start()][-1:], match.string[match.end() :][:1]
    return all(c.isalnum() or (c and c in ".,_+-") for c in (before, after))


def without_prefix(text: str) -> tuple[str, int | None]:
    """The line as the script printed it, and the rank it came from where a launcher tells."""
    rank = None
    for _ in range(4):
        if text[:1] not in "[(0123456789 \t" and not text.startswith(_BEFORE_LINES) and " | " not in text[:40]:
            break
        match = _PREFIX.match(text)
        if match is None or match.end() == 0:
            break
        found = next((g for g in match.groups() if g is not None), None)
        rank = rank if found is None else int(found)
        text = text[match.end() :]
    return text, rank


def _opened(path: Path) -> IO[bytes]:
    if path.exists() and not path.is_file():
        raise UnreadableError("is no file")  # a pipe would be waited for
    with path.open("rb") as file:
        head = file.read(8)
    for magic, opener in _MAGIC.items():
        if head.startswith(magic):
            return opener(path, "rb")  # type: ignore[operator]
    return path.open("rb")


def _encoding(sample: bytes) -> str:
    for bom, name in _BOMS.items():
        if sample.startswith(bom):
            return name
    sample = sample[:4096]
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    if max(even, odd) > len(sample) * 0.2 and min(even, odd) < max(even, odd) * 0.2:
        return "utf-16-le" if odd > even else "utf-16-be"
    sample = sample.replace(bytes(16), b"")  # blocks that a crash left unwritten
    if len(sample) - len(sample.translate(None, _BINARY)) > len(sample) * 0.3:
        raise UnreadableError("is not text")
    return "utf-8"
