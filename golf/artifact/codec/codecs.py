"""Byte compressors for the artifact. A codec that is not installed is an error, never another codec."""

from __future__ import annotations

import importlib.util
import lzma
import platform
import zlib
from importlib.metadata import version
from typing import Any

import zstandard

from golf.errors import MissingError
from golf.settings.config import QuantConfig

CODEC_IDS = {"zlib": 0, "zstd": 1, "lzma": 2, "brotli": 3, "context": 4}
NEEDS_PACKAGE = {"brotli": "brotli", "context": "numba"}  # packages of the extra golf[codec]
# The header of a file states the memory that decoding takes, and a hostile one may state any.
LZMA_MEMORY_BYTES = 1 << 30
ZSTD_SEARCHING_LEVEL = 19  # lowest level that optimises its parse by statistics


def require_codec(codec: str) -> None:
    """Raise `MissingError` if the package behind `codec` is not installed."""
    if codec in NEEDS_PACKAGE and importlib.util.find_spec(package := NEEDS_PACKAGE[codec]) is None:
        raise MissingError(
            f"codec {codec} needs the package {package}, which is not installed: pip install {package} "
            '(or ".[codec]" in the checkout); quant.codec=zlib, zstd and lzma need none.'
        )


def compress(data: bytes, quant: QuantConfig) -> bytes:
    """Return `data` compressed by the byte codec `quant.codec` at `quant.codec_level`."""
    # Branches on the setting itself, unlike a table of codecs, keep the other codecs out of an exported script.
    if quant.codec == "zlib":
        return zlib.compress(data, quant.codec_level)
    if quant.codec == "lzma":
        return lzma.compress(data, preset=quant.codec_level)
    if quant.codec == "brotli":
        return _brotli().compress(data, quality=quant.codec_level)
    return _zstd(data, quant.codec_level)


def _zstd(data: bytes, level: int) -> bytes:
    """Return the smaller of two frames: the level's own, and one whose matches have at least seven bytes.

    On quantized weights the search of levels 19 to 22 starts from short matches. For some runs it ends at 5 % more
    bytes than for other runs whose weights have the same distribution.
    """
    plain = zstandard.ZstdCompressor(level=level).compress(data)
    if level < ZSTD_SEARCHING_LEVEL:
        return plain
    long = zstandard.ZstdCompressionParameters.from_level(level, source_size=len(data), min_match=7)
    return min(plain, zstandard.ZstdCompressor(compression_params=long).compress(data), key=len)


def decompress(data: bytes, quant: QuantConfig, size: int) -> bytes:
    """Return exactly `size` bytes that `quant.codec` had compressed, or raise `ValueError`.

    Never allocates much more than that, whatever `data` claims.
    """
    if quant.codec == "zlib":
        out, finished = _decoded(zlib.decompressobj(), data, size)
    elif quant.codec in ("lzma", "context"):  # the entropy coder leaves the rest of a file to lzma
        out, finished = _decoded(lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=LZMA_MEMORY_BYTES), data, size)
    elif quant.codec == "brotli":
        out, finished = _unbrotli(data, size)
    else:
        out, finished = _unzstd(data, size)
    # Data of the right length may still be cut off or have bytes behind it.
    if len(out) != size or not finished:
        raise ValueError("the compressed data does not have the length it states")
    return out


def _decoded(decoder: Any, data: bytes, size: int) -> tuple[bytes, bool]:
    try:
        # One byte more than stated is let through: enough to notice a longer stream without unpacking all of it.
        out = decoder.decompress(data, size + 1)
    # Any error, because zlib and lzma have errors of their own.
    except Exception as error:
        raise ValueError(str(error)) from error
    return out, decoder.eof and not decoder.unused_data


def _unzstd(data: bytes, size: int) -> tuple[bytes, bool]:
    try:
        # The library allocates the size that the frame states, which a hostile file chooses.
        # A frame that states none gives -1, and the limit below holds.
        if zstandard.frame_content_size(data) not in (size, -1):
            return b"", False
        decoder = zstandard.ZstdDecompressor(max_window_size=1 << 27)
        return decoder.decompress(data, max_output_size=size, allow_extra_data=False), True
    except (zstandard.ZstdError, MemoryError) as error:
        raise ValueError(str(error)) from error


def _unbrotli(data: bytes, size: int) -> tuple[bytes, bool]:
    brotli = _brotli()
    decoder = brotli.Decompressor()
    try:
        out = decoder.process(data, output_buffer_limit=size + 1)
        # The decoder hands out its buffer in pieces and has to be asked again for the rest.
        while len(out) <= size and not decoder.is_finished():
            if not (more := decoder.process(b"", output_buffer_limit=size + 1 - len(out))):
                break
            out += more
    except (brotli.error, MemoryError) as error:
        raise ValueError(str(error)) from error
    return out, decoder.is_finished()


def _brotli() -> Any:
    require_codec("brotli")
    # An extra package, which users of the other codecs need not install.
    import brotli

    return brotli


def codec_version(codec: str) -> str:
    """Return the codec's library and version. Sizes depend on them, so results record them."""
    if codec == "zlib":
        return f"zlib {zlib.ZLIB_RUNTIME_VERSION}"
    if codec == "lzma":
        return f"lzma (Python {platform.python_version()})"
    if codec in NEEDS_PACKAGE:
        return f"{codec} ({NEEDS_PACKAGE[codec]} {version(NEEDS_PACKAGE[codec])})"
    return f"zstd {'.'.join(map(str, zstandard.ZSTD_VERSION))} (zstandard {zstandard.__version__})"
