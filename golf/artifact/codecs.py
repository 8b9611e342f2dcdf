"""Byte compressors for the artifact. A codec that is not installed is an error, never another codec."""

from __future__ import annotations

import lzma
import platform
import zlib

import zstandard

CODEC_IDS = {"zlib": 0, "zstd": 1, "lzma": 2}
LZMA_MEMORY_BYTES = 1 << 30


def compress(data: bytes, codec: str, level: int) -> bytes:
    """`data` compressed by `codec` at `level`."""
    if codec == "zlib":
        return zlib.compress(data, level)
    if codec == "lzma":
        return lzma.compress(data, preset=level)
    return zstandard.ZstdCompressor(level=level).compress(data)


def decompress(data: bytes, codec: str, size: int) -> bytes:
    """Exactly `size` bytes, or `ValueError`; never allocates more than that, whatever `data` claims."""
    try:
        if codec == "zlib":
            decoder = zlib.decompressobj()
            out = decoder.decompress(data, size + 1)
            finished = decoder.eof and not decoder.unused_data
        elif codec == "lzma":
            unpacker = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=LZMA_MEMORY_BYTES)
            out = unpacker.decompress(data, size + 1)
            finished = unpacker.eof and not unpacker.unused_data
        else:
            out = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompress(data, max_output_size=size)
            finished = True
    except (zlib.error, lzma.LZMAError, EOFError, zstandard.ZstdError, MemoryError) as error:
        raise ValueError(str(error)) from error
    if len(out) != size or not finished:
        raise ValueError("the compressed data does not have the length it states")
    return out


def codec_version(codec: str) -> str:
    """Library and version that compress, recorded because sizes depend on it."""
    if codec == "zlib":
        return f"zlib {zlib.ZLIB_RUNTIME_VERSION}"
    if codec == "lzma":
        return f"lzma (Python {platform.python_version()})"
    return f"zstd {'.'.join(map(str, zstandard.ZSTD_VERSION))} (zstandard {zstandard.__version__})"
