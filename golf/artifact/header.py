"""The header of an artifact, as JSON: the model's shape, its techniques and the form of every tensor."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from golf.artifact.quant.formats import FLOAT_DTYPES, CodedTensor
from golf.settings.config import ModelConfig, from_dict, techniques_from_dict
from golf.settings.consistency import check_model

MAX_CONTENT_BYTES = 1 << 30  # header and values before compression
MAX_DIMENSIONS = 8
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
ROW_SCALES = ("row", "row+hadamard")
SCALES = (None, "all", *ROW_SCALES)
PACKED = {f"i{bits}": bits for bits in range(1, 8)}  # codes without whole bytes of their own


@dataclass(frozen=True)
class Entry:
    """The stored form of one tensor."""

    name: str
    stored: str  # a key of DTYPES, or of PACKED
    dtype: str  # dtype of the decoded tensor
    shape: tuple[int, ...]
    scale: str | None  # row: float16 a row | row+hadamard: the same, of a rotated matrix | all: one float32

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def has_codes(self) -> bool:
        return self.scale is not None and (self.stored == "i8" or self.stored in PACKED)

    @property
    def scale_shape(self) -> tuple[int, ...]:
        return self.shape[:1] if self.scale in ROW_SCALES else ()

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """Return rows and columns of the codes."""
        if len(self.shape) < 2:
            return 1, self.numel
        return self.shape[0], math.prod(self.shape[1:])

    @property
    def role(self) -> str:
        """Return the name without layer numbers."""
        return re.sub(r"\d+", "#", self.name)


def entry_of(name: str, tensor: CodedTensor) -> Entry:
    """Return the form of a coded tensor with one byte per code."""
    if (
        tensor.scale is not None
        and tensor.scale.ndim
        and (tensor.data.ndim, *tensor.scale.shape) != (2, len(tensor.data))
    ):
        raise ValueError(f"{name} has {tensor.scale.numel()} scales: one for each row of a matrix, or a single one")
    scale = None if tensor.scale is None else "row" if tensor.scale.ndim else "all"
    scale = "row+hadamard" if tensor.rotated else scale
    return Entry(name, DTYPE_NAMES[tensor.data.dtype], DTYPE_NAMES[tensor.dtype], tuple(tensor.data.shape), scale)


def write_header(model: ModelConfig, tech: Mapping[str, Any] | None, entries: Iterable[Entry]) -> bytes:
    """Return the header as JSON without spaces."""
    shape = {k: v for k, v in dataclasses.asdict(model).items() if k not in ("name", "init_from")}
    settings = {name: dataclasses.asdict(technique) for name, technique in (tech or {}).items()}
    tensors = [[e.name, e.stored, e.dtype, list(e.shape), e.scale] for e in entries]
    return json.dumps({"model": shape, "tech": settings, "tensors": tensors}, separators=(",", ":")).encode()


def read_header(content: bytes) -> tuple[dict[str, Any], list[Entry]]:
    """Parse a header into its JSON values, for `read_model`, and its entries, which `check_entries` checks."""
    values = json.loads(content)
    return values, [
        Entry(n, stored, dtype, tuple(shape), scale) for n, stored, dtype, shape, scale in values["tensors"]
    ]


def check_entries(entries: Sequence[Entry]) -> None:
    """Raise `ValueError` for impossible entries. Entries of a wrong type raise other errors of `NOT_INTACT`."""
    for entry in entries:
        _check_entry(entry.name, entry.stored, entry.dtype, entry.shape, entry.scale)
    if len({entry.name for entry in entries}) != len(entries):
        raise ValueError("a tensor is listed twice")
    if sum(entry.numel + math.prod(entry.scale_shape) for entry in entries) > MAX_CONTENT_BYTES:
        raise ValueError(f"its tensors have more than {MAX_CONTENT_BYTES} values")


def read_model(values: Mapping[str, Any]) -> tuple[ModelConfig, dict[str, Any]]:
    """Return the model's shape and its techniques. Raises `GolfError` if they cannot be built."""
    model = from_dict(ModelConfig, values["model"])
    check_model(model)
    return model, techniques_from_dict(values["tech"])


def _check_entry(name: Any, stored: Any, dtype: Any, shape: Any, scale: Any) -> None:
    known = isinstance(name, str) and (stored in DTYPES or stored in PACKED) and dtype in DTYPES and scale in SCALES
    if not known or (stored in PACKED and scale is None):
        raise ValueError("a tensor has an unknown form")
    if len(shape) > MAX_DIMENSIONS or any(type(n) is not int or not 0 <= n <= MAX_CONTENT_BYTES for n in shape):
        raise ValueError("a tensor has an impossible shape")
    if scale in ROW_SCALES and len(shape) != 2:
        raise ValueError("what is not a matrix has a scale a row")
