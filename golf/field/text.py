"""Lines of any UTF-8 text file in bounded memory: gzip-compressed, cut off or with damaged bytes in it."""

from __future__ import annotations

import codecs
import gzip
import json
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from golf.files import open_plain
from golf.tables import table_of

CHUNK_BYTES = 1 << 18
LARGEST_BYTES = 1 << 28  # of unpacked text, which take half a minute; later text is not read
LONGEST_LINE = 1 << 16  # characters; a longer line is cut there
ENDING = ".gz"  # of compressed files; how a file is opened depends on its first bytes alone
UNREADABLE = "\ufffd"
_GZIP_MAGIC = b"\x1f\x8b"
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff]")
_BINARY = bytes(set(range(256)) - set(range(32, 256)) - set(b"\t\n\r\f\x1b\x08"))
_PREFIX = re.compile(rf"\s*(?:{'|'.join(table_of(__file__)['prefixes'])})")
_MOST_PREFIXES = 4  # one behind another
_BEFORE_LINES = ("rank", "stdout", "stderr", "wandb", "INFO")


class UnreadableError(Exception):
    """The reason why a file has no lines."""


class TextFile:
    """An iterator over (line number, text). After it ends, `problem` names lost data, if any."""

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
        """Yield (line number, text). A carriage return ends a line too; only line feeds count, as in an editor."""
        number, rest, skipping = 1, "", False
        # A chunk can end in the middle of a character.
        decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        is_first = True
        for _ in range(LARGEST_BYTES // CHUNK_BYTES):
            try:
                chunk = file.read(CHUNK_BYTES)
            except _DAMAGED as error:
                self.problem = f"the compressed data ends or breaks after line {number} ({type(error).__name__})"
                break
            if not chunk:
                break
            if is_first:
                _raise_for_binary(chunk)
                is_first = False
            *whole, rest = (rest + decode(chunk)).split("\n")
            for line in whole:
                if not skipping:
                    yield from ((number, piece) for piece in _pieces(_printed(line)))
                number, skipping = number + 1, False
            # The rest of a line that is too long is dropped up to its line feed, which keeps memory bounded.
            if skipping:
                rest = ""
            elif len(rest) > LONGEST_LINE:
                # Progress bars can fill a file without one line feed: what stands before the last bar is complete.
                head, _, tail = rest.rpartition("\r")
                yield from ((number, piece) for piece in _pieces(head or rest))
                rest, skipping = (tail, False) if head and len(tail) <= LONGEST_LINE else ("", True)
        else:
            self.problem = f"only the first {LARGEST_BYTES:,} bytes of its text were read, up to line {number}"
            # Half a line may end in half a number.
            rest = ""
        if rest and not skipping:
            yield from ((number, piece) for piece in _pieces(_printed(rest)))


def _printed(line: str) -> str:
    """Return what a program printed, of a line of a Kaggle notebook's log, which is JSON; any other line as it is."""
    if not line.startswith(('{"stream_name', '[{"stream_name', ',{"stream_name')):
        return line
    try:
        text = str(json.loads(line.strip("[,] \t\r"))["data"])
    except (ValueError, KeyError, RecursionError):
        return line
    # An entry may have several lines, which are pieces of one line of the file.
    return text.replace("\n", "\r")


def _pieces(line: str) -> Iterator[str]:
    """Yield the parts of a line between carriage returns, without colour codes and control characters."""
    for piece in line.split("\r") if "\r" in line else (line,):
        text = piece[:LONGEST_LINE]
        if "\x1b" in text:
            text = _removed(_ESCAPES, text)
        if not text.isprintable():
            text = _removed(_CONTROL, text)
        if text and not text.isspace():
            yield text


def _removed(pattern: re.Pattern[str], text: str) -> str:
    """Return `text` without matches of `pattern`. A match within a number leaves a mark, so that no other number
    results."""
    return pattern.sub(lambda m: UNREADABLE if _splits_a_number(m) else "", text)


def _splits_a_number(match: re.Match[str]) -> bool:
    """Tell whether characters of a number or word stand on both sides of the match."""
    before, after = match.string[: match.start()][-1:], match.string[match.end() :][:1]
    return all(c.isalnum() or (c and c in ".,_+-") for c in (before, after))


def without_prefix(text: str) -> tuple[str, int | None]:
    """Return the line as the script printed it, and the rank it came from if the launcher wrote that."""
    rank = None
    for _ in range(_MOST_PREFIXES):
        # The expression is slow, and nearly every line begins with none of these.
        if text[:1] not in "[(0123456789 \t" and not text.startswith(_BEFORE_LINES) and " | " not in text[:40]:
            break
        match = _PREFIX.match(text)
        if match is None or match.end() == 0:
            break
        number = next((g for g in match.groups() if g is not None), None)
        rank = rank if number is None else int(number)
        text = text[match.end() :]
    return text, rank


def content_of(path: Path, most_bytes: int = LARGEST_BYTES) -> bytes:
    """Return the first `most_bytes` of a file, or of the file that a link leads to. Raises `UnreadableError`."""
    try:
        with open_plain(Path(os.path.realpath(path))) as file:
            return file.read(most_bytes)
    except OSError as error:
        raise UnreadableError(f"cannot be read ({error.strerror})") from error


def text_of(path: Path) -> str:
    """Return the text of a file in UTF-8; empty if there is none or it cannot be read."""
    try:
        return content_of(path).decode(errors="replace")
    except UnreadableError:
        return ""


def _opened(path: Path) -> IO[bytes]:
    """Open a file for reading, through gzip if it is compressed."""
    file = open_plain(Path(os.path.realpath(path)))
    is_gzip = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    file.seek(0)
    return gzip.open(file, "rb") if is_gzip else file  # type: ignore[return-value]


def _raise_for_binary(chunk: bytes) -> None:
    """Raise `UnreadableError` if control characters are more than 30 % of the first 4,096 bytes."""
    # A crash leaves blocks of NULs where it had not written yet: the text around them is still a log.
    sample = chunk[:4096].replace(bytes(16), b"")
    if chunk.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UnreadableError("is UTF-16: save it as UTF-8")
    if len(sample) - len(sample.translate(None, _BINARY)) > len(sample) * 0.3:
        raise UnreadableError("is not text")
