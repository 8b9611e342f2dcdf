"""The field's shard files: 256 little-endian int32 of header, then uint16 tokens, little-endian.

Header: [0] = 20240520, [1] = 1, [2] = number of tokens, the rest zero. A sidecar has the same layout: beside the tokens
`<prefix>_val_000000.bin` lie the UTF-8 bytes of the text behind each of them, as `<prefix>_val_bytes_000000.bin`.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from golf.errors import GolfError

MAGIC = 20240520
VERSION = 1
HEADER_INTS = 256
HEADER_BYTES = HEADER_INTS * 4
# Little-endian on every machine.
TOKEN_DTYPE = np.dtype("<u2")
_SIDECAR = re.compile(r"_bytes_\d+\.bin$")


def find_shards(folder: Path, pattern: str, what: str) -> list[Path]:
    """Return the shard files of `folder` in lexical order, without the sidecars that the pattern matches, too.

    Raises a `GolfError` that names `what` if there are none.
    """
    if not folder.is_dir():
        raise GolfError(
            f"The data folder {folder} does not exist: fetch it with `golf data get`, give data.path, "
            "or use the embedded text with data=pydocs."
        )
    if not (files := sorted(path for path in folder.glob(pattern) if not _SIDECAR.search(path.name))):
        raise GolfError(f"{folder} holds no {what} shards ({pattern}): fetch more or set data.{what}_files.")
    return files


def open_shard(path: Path) -> np.ndarray:
    """Return the memory-mapped tokens `[n]` uint16 of a shard. Raises `GolfError` for a foreign or truncated file."""
    size = path.stat().st_size
    if size < HEADER_BYTES:
        raise GolfError(f"{path} is {size} bytes, less than a shard's header: fetch it again.")
    header = np.fromfile(path, dtype="<i4", count=HEADER_INTS)
    if (header[0], header[1]) != (MAGIC, VERSION):
        raise GolfError(
            f"{path} is not a token shard: its header starts with {header[0]}, {header[1]} instead of "
            f"{MAGIC}, {VERSION}; make shards with golf data tokenize."
        )
    tokens = int(header[2])
    if tokens < 0 or size != HEADER_BYTES + tokens * TOKEN_DTYPE.itemsize:
        wanted = f"{tokens} tokens in {HEADER_BYTES + 2 * tokens} bytes"
        raise GolfError(f"{path} should hold {wanted} but has {size}: it was cut off or altered; fetch it again.")
    # An empty part of a file cannot be mapped.
    if tokens == 0:
        return np.empty(0, dtype=TOKEN_DTYPE)
    return np.memmap(path, dtype=TOKEN_DTYPE, mode="r", offset=HEADER_BYTES, shape=(tokens,))


def write_shard(path: Path, tokens: np.ndarray) -> None:
    """Write `tokens` `[n]`, ids below 65,536, as one shard."""
    header = np.zeros(HEADER_INTS, dtype="<i4")
    header[:3] = MAGIC, VERSION, tokens.size
    with path.open("wb") as file:
        file.write(header.tobytes())
        file.write(tokens.astype(TOKEN_DTYPE).tobytes())
