"""A submission's script, read without running it: what it is when it is unpacked, what it imports, what it should not.

Static reading finds what is written plainly and nothing else; that is why what it finds is to be looked at.
"""

from __future__ import annotations

import ast
import base64
import binascii
import bz2
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LARGEST_BYTES = 64 << 20  # that a script may unpack to
NETWORK = {
    *("requests", "urllib", "urllib3", "http", "socket", "ftplib", "aiohttp", "httpx", "paramiko", "wget"),
    *("huggingface_hub", "datasets", "boto3", "gdown"),
}
TRAINING_TEXT = re.compile(r"train_files|_train_\*|train_\d*\.bin|train_loader|train_stream|\btrain_tokens\b")
EVALUATION = re.compile(r"eval|score|valid|ttt", re.IGNORECASE)
VALIDATION_TEXT = re.compile(r"val_tokens|_val_\*|val_files|validation_tokens")
TRAINING = re.compile(r"^(train|train_loop|training_step|calibrate\w*|collect_hessians?\w*)$")


@dataclass(frozen=True)
class Script:
    """`text` is what runs in the end; `layers` names what it was packed in."""

    text: str
    layers: tuple[str, ...]
    tree: ast.Module | None
    problem: str = ""


def read_script(path: Path) -> Script:
    """Unpack and parse; a script that is not Python has a problem and no tree."""
    layers: list[str] = []
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return Script("", (), None, f"{path.name} cannot be read as UTF-8 ({error})")
    if not text.strip():
        return Script("", (), None, f"{path.name} is empty")
    while (inner := _unpacked(text)) is not None and len(layers) < 3:
        layers.append(inner[0])
        text = inner[1]
    try:
        return Script(text, tuple(layers), ast.parse(text))
    except (SyntaxError, ValueError, RecursionError) as error:
        return Script(text, tuple(layers), None, f"{path.name} is not Python that this version reads ({error})")


def _unpacked(text: str) -> tuple[str, str] | None:
    """(codec, source) of a script that is one long string and a call of exec; None for any other."""
    if "exec(" not in text:
        return None
    try:
        strings = [n.value for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Constant)]
    except (SyntaxError, ValueError, RecursionError):
        return None
    packed = [s for s in strings if isinstance(s, str | bytes) and len(s) > len(text) // 2]
    for candidate in packed:
        for data in _decoded(candidate):
            for codec, source in _decompressed(data):
                try:
                    return codec, source.decode("utf-8")
                except UnicodeDecodeError:
                    continue
    return None


def _decoded(text: str | bytes) -> Iterator[bytes]:
    raw = text.encode("latin-1", "ignore") if isinstance(text, str) else text
    for decode in (base64.b85decode, base64.a85decode, base64.b64decode, bytes):
        try:
            yield decode(raw)
        except (ValueError, binascii.Error):
            continue


def _decompressed(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Every way in which `data` can be unpacked, into no more than `LARGEST_BYTES`."""
    decoders: dict[str, Callable[[], Any]] = {
        "lzma": lambda: lzma.LZMADecompressor(memlimit=1 << 30),
        "lzma raw": lambda: lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2}]),
        "bz2": bz2.BZ2Decompressor,
        "zlib": lambda: zlib.decompressobj(),
        "gzip": lambda: zlib.decompressobj(31),
    }
    for codec, make in decoders.items():
        try:
            out = make().decompress(data, LARGEST_BYTES)
        except (lzma.LZMAError, zlib.error, EOFError, OSError, ValueError, MemoryError):
            continue
        if out:
            yield codec, out


def imported_packages(tree: ast.Module) -> set[str]:
    """Top-level packages that are not Python's own."""
    return {name for name in _imported(tree) if name not in sys.stdlib_module_names}


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def suspicions(tree: ast.Module) -> list[str]:
    """Places where a forbidden thing seems to be written: network, training text in scoring, validation in training."""
    found = []
    for name in sorted(set(_imported(tree)) & NETWORK):
        found.append(f"imports {name}: there is no network during evaluation")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = ast.unparse(ast.Module(node.body, []))
            if EVALUATION.search(node.name) and not TRAINING.match(node.name) and TRAINING_TEXT.search(body):
                found.append(f"line {node.lineno}: {node.name} names training text")
            if TRAINING.match(node.name) and VALIDATION_TEXT.search(body):
                found.append(f"line {node.lineno}: {node.name} names validation text")
    return found
