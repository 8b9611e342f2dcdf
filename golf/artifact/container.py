"""The artifact file: quantized tensors and what their model is made of in one compressed, checksummed container.

No pickle anywhere. Version 1, little-endian:

    4 B  magic "GOLF"
    1 B  version
    1 B  codec (0 zlib, 1 zstd, 2 lzma)
    8 B  length of the payload before compression
    4 B  CRC-32 of the 14 bytes above and of everything after this field
    …    compressed payload: u32 length of the JSON header, the header, then the tensors' bytes in its order

The header is `{"model": {…ModelConfig…}, "tech": {name: {…settings…}}, "tensors": [[name, data dtype, dtype after
decoding, shape, scale], …]}` where scale is null, "row" (float16 per row), "row+hadamard" (the same, of a rotated
matrix) or "all" (one float32), stored right after the tensor's data.
"""

from __future__ import annotations

import dataclasses
import json
import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from golf.artifact.codecs import CODEC_IDS, compress, decompress
from golf.config import ModelConfig, QuantConfig, from_dict, techniques_from_dict
from golf.consistency import check_model
from golf.errors import GolfError
from golf.quant.formats import FLOAT_DTYPES, CodedTensor
from golf.quant.policy import dequantize

MAGIC = b"GOLF"
VERSION = 1
FIXED = struct.Struct("<4sBBQ")
CRC = struct.Struct("<I")
LENGTH = struct.Struct("<I")
MAX_PAYLOAD_BYTES = 1 << 32
DTYPES = {
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
    "bool": torch.bool,
    **FLOAT_DTYPES,
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Artifact:
    """What an artifact file holds: the model's shape, its techniques, and its tensors as they are stored."""

    model: ModelConfig
    tech: dict[str, Any]
    coded: dict[str, CodedTensor]

    def state_dict(self) -> dict[str, Tensor]:
        """Dequantized weights, ready for `load_state_dict(strict=True)`."""
        return dequantize(self.coded)


def payload(coded: Mapping[str, CodedTensor], model: ModelConfig, tech: Mapping[str, Any] | None = None) -> bytes:
    """The container's content before compression."""
    entries, chunks = [], []
    for name, tensor in coded.items():
        scale = None if tensor.scale is None else "row" if tensor.scale.ndim else "all"
        scale = "row+hadamard" if tensor.rotated else scale
        data_dtype, dtype = DTYPE_NAMES[tensor.data.dtype], DTYPE_NAMES[tensor.dtype]
        entries.append([name, data_dtype, dtype, list(tensor.data.shape), scale])
        chunks.append(_to_bytes(tensor.data))
        if tensor.scale is not None:
            chunks.append(_to_bytes(tensor.scale))
    shape = {k: v for k, v in dataclasses.asdict(model).items() if k not in ("name", "init_from")}
    settings = {name: dataclasses.asdict(technique) for name, technique in (tech or {}).items()}
    header = json.dumps({"model": shape, "tech": settings, "tensors": entries}, separators=(",", ":")).encode()
    return b"".join([LENGTH.pack(len(header)), header, *chunks])


def pack(
    coded: Mapping[str, CodedTensor], model: ModelConfig, quant: QuantConfig, tech: Mapping[str, Any] | None = None
) -> bytes:
    """The artifact file's bytes. `tech` are the techniques of the model, `cfg.tech`."""
    content = payload(coded, model, tech)
    body = compress(content, quant.codec, quant.codec_level)
    fixed = FIXED.pack(MAGIC, VERSION, CODEC_IDS[quant.codec], len(content))
    return fixed + CRC.pack(zlib.crc32(body, zlib.crc32(fixed))) + body


def load(path: str | Path) -> Artifact:
    """Read an artifact file. Raises `GolfError` if it is missing, foreign, cut off or altered."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise GolfError(f"The artifact {path} cannot be read ({error.strerror}): check the path.") from error
    try:
        return unpack(content)
    except (GolfError, ValueError, KeyError, TypeError, IndexError, struct.error) as error:
        raise GolfError(f"{path} is not an intact artifact ({error}): pack the run's weights again.") from error


def unpack(content: bytes) -> Artifact:
    """Inverse of `pack`; raises one of several errors for anything that `pack` did not write, see `load`."""
    if content[: len(MAGIC)] != MAGIC or len(content) < FIXED.size + CRC.size:
        raise ValueError("it does not start like one")
    fixed, rest = content[: FIXED.size], content[FIXED.size :]
    _, version, codec_id, size = FIXED.unpack(fixed)
    body = rest[CRC.size :]
    if zlib.crc32(body, zlib.crc32(fixed)) != CRC.unpack(rest[: CRC.size])[0]:
        raise ValueError("its checksum does not match")
    codecs = {number: name for name, number in CODEC_IDS.items()}
    if version != VERSION or codec_id not in codecs or size > MAX_PAYLOAD_BYTES:
        raise ValueError(f"version {version} or codec {codec_id} is unknown, or {size} bytes are too many")
    return _parse(decompress(body, codecs[codec_id], size))


def _parse(content: bytes) -> Artifact:
    start = LENGTH.size + LENGTH.unpack(content[: LENGTH.size])[0]
    header = json.loads(content[LENGTH.size : start])
    coded: dict[str, CodedTensor] = {}
    reader = _Reader(content, start)
    for name, data_dtype, dtype, shape, scale in header["tensors"]:
        data = reader.take(DTYPES[data_dtype], shape)
        row = (torch.float16, shape[:1])
        scales = {"row": row, "row+hadamard": row, "all": (torch.float32, [])}
        stored = reader.take(*scales[scale]) if scale else None
        coded[name] = CodedTensor(data, stored, DTYPES[dtype], rotated=scale == "row+hadamard")
    if reader.position != len(content):
        raise ValueError("bytes are left over behind the last tensor")
    model = from_dict(ModelConfig, header["model"])
    check_model(model)
    return Artifact(model, techniques_from_dict(header["tech"]), coded)


class _Reader:
    def __init__(self, content: bytes, position: int):
        self.content, self.position = content, position

    def take(self, dtype: torch.dtype, shape: list[int]) -> Tensor:
        if any(not isinstance(n, int) or n < 0 for n in shape):
            raise ValueError("a tensor has an impossible shape")
        size = math.prod(shape) * dtype.itemsize
        if self.position + size > len(self.content):
            raise ValueError("a tensor reaches beyond the end")
        raw = bytearray(self.content[self.position : self.position + size])
        self.position += size
        return torch.frombuffer(raw, dtype=dtype).view(shape) if size else torch.zeros(shape, dtype=dtype)


def _to_bytes(tensor: Tensor) -> bytes:
    flat: Any = tensor.contiguous().flatten().view(torch.uint8)
    return flat.numpy().tobytes()
