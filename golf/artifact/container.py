"""The artifact file: quantized tensors, the model's shape and its techniques in one compressed, checksummed container.

No pickle anywhere. Little-endian:

    4 B  magic "GOLF"
    1 B  version: 3 if any tensor has column steps, a trellis, scales of groups or a technique's format, else 2
    1 B  codec (0 zlib, 1 zstd, 2 lzma, 3 brotli, 4 context)
    1 B  layout: the sum of 1 pack_bits, 2 by_role, 4 sort_rows, 8 byte_planes (see `layouts`)
    8 B  length of the content before compression
    8 B  length of the content as compressed
    4 B  CRC-32 of the 23 bytes above and of everything after this field
    …    compressed content: u32 length of the JSON header, the header (see `header`), the values in the layout's order
    …    context only: codes and row scales, in the header's order, coded by `context`; the content, compressed by lzma,
         then holds all other values, in byte planes
"""

from __future__ import annotations

import contextlib
import json
import lzma
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from golf.artifact.codec.codecs import CODEC_IDS, compress, decompress, require_codec
from golf.artifact.codec.layouts import LAYOUT_BITS, bytes_to_values, packed_entry, values_to_bytes
from golf.artifact.header import (
    MAX_CONTENT_BYTES,
    Entry,
    check_entries,
    entry_of,
    read_header,
    read_model,
    write_header,
)
from golf.artifact.quant.formats import CodedTensor, CodedTensors, Tech, in_groups
from golf.artifact.quant.policy import dequantize, dequantize_as
from golf.errors import GolfError, MissingError
from golf.files import DAMAGED, read_json, read_plain
from golf.idea_folders import refuse_changed
from golf.settings.config import ModelConfig, QuantConfig, packs_bits, techniques_from_dict

MAGIC = b"GOLF"
VERSION, VERSION_OF_STEPS = 2, 3  # of the file format; the second one has steps of columns and trellises
FIXED = struct.Struct("<4sBBBQQ")
CRC = struct.Struct("<I")
LENGTH = struct.Struct("<I")
# A header lists its tensors in some dozens of bytes each; a longer one was not written by golf.
MAX_HEADER_BYTES = 1 << 22
BESIDE_CONTEXT_LEVEL = 9  # lzma's level for everything but codes and row scales under codec=context
NOT_INTACT = (  # errors that reading raises for a foreign or damaged file
    *(GolfError, ValueError, LookupError, TypeError, AttributeError, struct.error),
    *(OverflowError, MemoryError, RecursionError),
)


@dataclass(frozen=True)
class Artifact:
    """The content of an artifact file: the model's shape, its techniques, and its tensors as they are stored."""

    model: ModelConfig
    tech: dict[str, Any]
    coded: dict[str, CodedTensor]

    def state_dict(self) -> dict[str, Tensor]:
        """Return the dequantized weights, ready for `load_state_dict(strict=True)`."""
        return dequantize(self.coded)


def payload(coded: CodedTensors, model: ModelConfig, quant: QuantConfig, tech: Tech | None = None) -> bytes:
    """Return the content before compression: a header that lists all tensors, and their values.

    The codec `context` codes some tensors itself, and the content has no values of these.
    """
    entries = [entry_of(name, tensor) for name, tensor in coded.items()]
    if packs_bits(quant):
        entries = [packed_entry(entry, coded[entry.name].data) for entry in entries]
    header = write_header(model, tech, entries)
    inside = [(e, coded[e.name]) for e in entries if quant.codec != "context" or not e.has_codes]
    return LENGTH.pack(len(header)) + header + values_to_bytes(inside, quant)


def plain_bytes(coded: CodedTensors, model: ModelConfig, tech: Tech | None = None) -> int:
    """Return the length of the content in no particular layout: header, codes of a byte each, and scales."""
    header = write_header(model, tech, [entry_of(name, tensor) for name, tensor in coded.items()])
    return LENGTH.size + len(header) + sum(tensor.payload_bytes for tensor in coded.values())


def pack(coded: CodedTensors, model: ModelConfig, quant: QuantConfig, tech: Tech | None = None) -> bytes:
    """Return the bytes of an artifact file. `tech` are the model's techniques, `cfg.tech`."""
    content, codes = payload(coded, model, quant, tech), b""
    if quant.codec == "context":
        require_codec(quant.codec)
        # It imports numba, which only this codec needs.
        from golf.artifact.codec.context import encode

        entries = ((entry_of(name, tensor), tensor) for name, tensor in coded.items())
        codes = encode((entry, tensor) for entry, tensor in entries if entry.has_codes)
        body = lzma.compress(content, preset=BESIDE_CONTEXT_LEVEL)
    else:
        body = compress(content, quant)
    # Files without either keep the older version, so that older versions of golf open them.
    has_steps = any(t.has_columns or t.states > 1 or in_groups(t) or t.own for t in coded.values())
    version = VERSION_OF_STEPS if has_steps else VERSION
    fixed = FIXED.pack(MAGIC, version, CODEC_IDS[quant.codec], _layout_bits(quant), len(content), len(body))
    return fixed + CRC.pack(zlib.crc32(body + codes, zlib.crc32(fixed))) + body + codes


def load(path: str | Path, *, by_its_run: bool = False) -> Artifact:
    """Read an artifact file. Raises `GolfError` if it is missing, foreign, cut off or altered.

    Also raises it if an idea has changed since the run in the same folder, unless that run itself reads the file.
    """
    content = read_file(path)
    with _intact(path):
        artifact = unpack(content)
    if not artifact.coded:
        raise GolfError(f"{path} holds no tensors: pack the run's weights again.")
    if artifact.tech and not by_its_run:
        refuse_changed(_codes_beside(path))
    return artifact


def _codes_beside(path: str | Path) -> dict[str, str]:
    """Return the hashes of the ideas of the run in the same folder; empty if no configuration can be read there."""
    try:
        return read_json(Path(path).with_name("config.json"))["idea_code"]
    except DAMAGED:
        return {}


def load_weights_only(
    path: str | Path, quant: QuantConfig, tech: Tech, model: ModelConfig | None = None
) -> dict[str, Tensor]:
    """Read the dequantized weights of an artifact of `tech` that was packed with `quant`. Exported scripts do so.

    Trusts a file whose checksum matches. Raises `GolfError` for others, and for those of another codec or layout or,
    if `model` is given, of another model or other techniques.
    """
    try:
        codec_id, layout_bits, size, body, codes = split(read_file(path))
    except (ValueError, OSError, struct.error) as error:
        raise GolfError(f"{path} is not an intact artifact ({error}): pack the run's weights again.") from error
    if (codec_id, layout_bits) != (CODEC_IDS[quant.codec], _layout_bits(quant)):
        raise GolfError(f"{path} was packed with another codec or layout than {quant.name}: pack the weights again.")
    header, coded = _tensors(size, body, codes, quant, lambda header: read_header(header, tech))
    own = model and json.loads(write_header(model, tech, ()))
    if own and (header["model"], header["tech"]) != (own["model"], own["tech"]):
        raise GolfError(f"{path} holds a model of other settings: give the artifact of this script.")
    return dequantize_as(coded, quant)


def read_file(path: str | Path) -> bytes:
    """Return the content of an artifact file. Raises `GolfError` if it cannot be read."""
    try:
        return read_plain(Path(os.path.realpath(path)))
    except OSError as error:
        raise GolfError(f"The artifact {path} cannot be read ({error.strerror}): check the path.") from error


@contextlib.contextmanager
def _intact(path: str | Path) -> Iterator[None]:
    try:
        yield
    except MissingError as error:
        raise MissingError(f"{path} cannot be opened: {error}") from error
    except NOT_INTACT as error:
        raise GolfError(f"{path} is not an intact artifact ({error}): pack the run's weights again.") from error


def unpack(content: bytes) -> Artifact:
    """Invert `pack`. Raises one of `NOT_INTACT` for other bytes; `load` turns it into `GolfError`."""
    codec_id, layout_bits, size, body, codes = open_envelope(content)
    codecs = {number: name for name, number in CODEC_IDS.items()}
    # Bits above the known ones are layouts of another version.
    if codec_id not in codecs or layout_bits >> len(LAYOUT_BITS):
        raise ValueError(f"codec {codec_id} or layout {layout_bits} is unknown")
    layout = [name for name, bit in LAYOUT_BITS.items() if layout_bits & bit]
    quant = QuantConfig(codec=codecs[codec_id], layout=layout)
    if layout_bits != _layout_bits(quant):
        raise ValueError(f"layout {layout_bits} does not go with codec {quant.codec}")
    header, coded = _tensors(size, body, codes, quant, _checked_header)
    return Artifact(*read_model(header), coded)


def open_envelope(content: bytes) -> tuple[int, int, int, bytes, bytes]:
    """Return what `split` does for a file of unknown origin. Raises `ValueError` for any other file."""
    if content[: len(MAGIC)] != MAGIC or len(content) < FIXED.size + CRC.size:
        raise ValueError("it does not start like one")
    # Before the checksum, so that a file of a newer format is not called damaged.
    if content[len(MAGIC)] not in (VERSION, VERSION_OF_STEPS):
        version = f"it has version {content[len(MAGIC)]} of the format"
        raise ValueError(f"{version}, this golf reads up to {VERSION_OF_STEPS}")
    parts = split(content)
    # A hostile file has a right checksum, too: its sizes are bounded before anything is allocated.
    if (size := parts[2]) > MAX_CONTENT_BYTES or FIXED.unpack(content[: FIXED.size])[-1] > len(parts[3]):
        raise ValueError(f"{size} bytes are too many, or its parts are longer than the file")
    return parts


def split(content: bytes) -> tuple[int, int, int, bytes, bytes]:
    """Return codec, layout, bytes of the content before compression, body and the entropy coder's stream of a file.

    Raises `ValueError` for an artifact that was altered.
    """
    fixed, rest = content[: FIXED.size], content[FIXED.size :]
    _, _, codec_id, layout_bits, size, compressed_size = FIXED.unpack(fixed)
    body = rest[CRC.size :]
    if zlib.crc32(body, zlib.crc32(fixed)) != CRC.unpack(rest[: CRC.size])[0]:
        raise ValueError("its checksum does not match")
    return codec_id, layout_bits, size, body[:compressed_size], body[compressed_size:]


def _checked_header(content: bytes) -> tuple[dict[str, Any], list[Entry]]:
    """Read the header of a file of unknown origin, as `read_header` does, and check it. Raises one of `NOT_INTACT`."""
    if len(content) > MAX_HEADER_BYTES:
        raise ValueError("its header is too long")
    header, entries = read_header(content, techniques_from_dict(json.loads(content)["tech"]))
    check_entries(entries)
    return header, entries


def _tensors(
    size: int, body: bytes, codes: bytes, quant: QuantConfig, read: Callable[[bytes], tuple[dict, list[Entry]]]
) -> tuple[dict, dict[str, CodedTensor]]:
    """Return the header as JSON, and every tensor as it is stored. `read` parses the header."""
    content = decompress(body, quant, size)
    # The header comes first and tells the form of all that follows.
    start = LENGTH.size + LENGTH.unpack(content[: LENGTH.size])[0]
    header, entries = read(content[LENGTH.size : start])
    if quant.codec == "context":
        require_codec(quant.codec)
        # It imports numba, which only this codec needs.
        from golf.artifact.codec.context import decode as decode_codes

        values = bytes_to_values(content[start:], [entry for entry in entries if not entry.has_codes], quant)
        values |= decode_codes(codes, [entry for entry in entries if entry.has_codes])
    else:
        values = bytes_to_values(content[start:], entries, quant)
        if codes:
            raise ValueError("bytes are left over behind the content")
    # In the header's order, which is that of the state dict, whichever part of the file a tensor came from.
    return header, {entry.name: values[entry.name] for entry in entries}


def _layout_bits(quant: QuantConfig) -> int:
    layout = ["byte_planes"] if quant.codec == "context" else quant.layout
    return sum(bit for name, bit in LAYOUT_BITS.items() if name in layout)
