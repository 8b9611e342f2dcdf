"""Unpacking of scripts that execute source from a compressed string, without running them."""

from __future__ import annotations

import ast
import base64
import binascii
import bz2
import contextlib
import importlib
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import zstandard

LARGEST_BYTES = 64 << 20  # of an unpacked script
SMALLEST_PAYLOAD = 200  # characters of a string that may hold a program
# A raw stream does not name the size of its dictionary; one that is larger than needed reads it as well.
LZMA2 = [{"id": lzma.FILTER_LZMA2, "dict_size": 64 << 20}]
_RUNS_TEXT = re.compile(
    r"\b(?:exec|eval|compile|run_path|run_module|exec_module|execfile|execv\w*|subprocess|system)\b"
)


def unpacked(text: str) -> tuple[str, str] | None:
    """Return (codec, source) of a script whose larger part is one packed string, None for any other script."""
    for payload in _payloads(text):
        for data in _decoded(payload):
            for codec, source in _decompressed(data):
                # Random bytes unpack to a few bytes by accident; a program is longer than its packed form.
                if len(source) >= len(data) and (program := _program(source)) is not None:
                    return codec, program
    return None


def is_packed(text: str) -> bool:
    """Tell whether a script executes a string that does not look like prose."""
    return bool(_RUNS_TEXT.search(text)) and any(not _is_prose(payload) for payload in _payloads(text))


def _payloads(text: str) -> list[str | bytes]:
    """Return constants that take more than half of the script's text."""
    try:
        constants = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found: list[str | bytes] = []
    for node in constants:
        if not isinstance(node.value, str | bytes) or len(node.value) < SMALLEST_PAYLOAD:
            continue
        if len(ast.get_source_segment(text, node) or "") > len(text) // 2:
            found.append(node.value)
    return found


def _is_prose(payload: str | bytes) -> bool:
    """Tell whether a string has words, as a long documentation string does."""
    return isinstance(payload, str) and len(payload.split()) > len(payload) / 25


def _program(source: bytes) -> str | None:
    """Return bytes as the text of a Python program, None if they are none."""
    try:
        text = source.decode("utf-8")
        ast.parse(text)
    except (UnicodeDecodeError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return text


def _decoded(payload: str | bytes) -> Iterator[bytes]:
    """Yield the payload through every text encoding that accepts it."""
    try:
        raw = payload.encode("latin-1") if isinstance(payload, str) else payload
    except UnicodeEncodeError:
        return
    for decode in (base64.b85decode, base64.a85decode, base64.b64decode, binascii.unhexlify, base64.b32decode, bytes):
        try:
            yield decode(raw)
        except (ValueError, binascii.Error):
            continue


def _decompressed(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield (codec, bytes) for every codec that accepts `data`, at most `LARGEST_BYTES` of output."""
    # Raw streams have no marker at their beginning: every codec has to be tried.
    decoders: dict[str, Callable[[], Any]] = {
        # A header can ask for a dictionary of gigabytes, which the limit refuses.
        "lzma": lambda: lzma.LZMADecompressor(memlimit=1 << 30),
        "lzma raw": lambda: lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=LZMA2),
        "bz2": bz2.BZ2Decompressor,
        "zlib": zlib.decompressobj,
        # zlib's window bits: 31 reads a gzip header, -15 reads a stream without any header.
        "gzip": lambda: zlib.decompressobj(31),
        "deflate": lambda: zlib.decompressobj(-15),
    }
    for codec, make in decoders.items():
        try:
            out = make().decompress(data, LARGEST_BYTES)
        except (lzma.LZMAError, zlib.error, EOFError, OSError, ValueError, MemoryError):
            continue
        if out:
            yield codec, out
    yield from _with_packages(data)


def _with_packages(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the same for codecs outside the standard library; brotli only where it is installed."""
    with contextlib.suppress(zstandard.ZstdError), zstandard.ZstdDecompressor().stream_reader(data) as reader:
        yield "zstd", reader.read(LARGEST_BYTES)
    if find_spec("brotli"):
        brotli = importlib.import_module("brotli")
        with contextlib.suppress(brotli.error):
            yield "brotli", brotli.Decompressor().process(data, output_buffer_limit=LARGEST_BYTES)
