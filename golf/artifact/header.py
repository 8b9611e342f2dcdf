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

from golf.artifact.quant.formats import FLOAT_DTYPES, CodedTensor, Tech, in_groups, own_formats
from golf.settings.config import ModelConfig, from_dict, has_formats, techniques_from_dict
from golf.settings.consistency import check_model

# A file may state any size. Real ones stay far below these limits, as the cap is 16 MB.
MAX_CONTENT_BYTES = 1 << 30  # header and values before compression
MAX_DIMENSIONS = 8
INTEGER_DTYPES = {"i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8}
DTYPES = {**INTEGER_DTYPES, "bool": torch.bool, **FLOAT_DTYPES}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
GROUP, COLUMNS, ROTATED, TRELLIS, OWN = "group", "+columns", "+hadamard", "+trellis", "by:"
SCALES = re.compile(r"all|by:[a-z]\w*|group[1-9]\d*|row(\+columns)?(\+trellis(4|8|16))?(\+hadamard)?")
PACKED = {f"i{bits}": bits for bits in range(1, 8)}  # codes without whole bytes of their own


@dataclass(frozen=True)
class Entry:
    """The stored form of one tensor."""

    name: str
    stored: str  # a key of DTYPES, or of PACKED
    dtype: str  # dtype of the decoded tensor
    shape: tuple[int, ...]
    # all: one float32 | groupN: float16 for N values side by side | row: float16 a row, then +columns: int8 a column,
    # +trellisN: codes on a trellis of N states, +hadamard: codes of the rotated matrix | by:NAME: a technique's format
    scale: str | None
    own: Any = None  # the OwnFormat of that technique

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def has_codes(self) -> bool:
        return self.scale is not None and (self.stored == "i8" or self.stored in PACKED)

    @property
    def scale_shape(self) -> tuple[int, ...]:
        if self.own is not None:
            return (self.own.scale_count(self.shape),)
        if self.scale is not None and self.scale.startswith(GROUP):
            return (self.numel // int(self.scale.removeprefix(GROUP)),)
        return self.shape[:1] if self.scale not in (None, "all") else ()

    @property
    def scale_dtype(self) -> torch.dtype:
        return (torch.float32 if self.scale == "all" else torch.float16) if self.own is None else self.own.scale_dtype

    @property
    def has_columns(self) -> bool:
        return self.scale is not None and COLUMNS in self.scale

    @property
    def trellis_states(self) -> int:
        """Return the states of the trellis that the codes lie on; 1 = none."""
        return int((self.scale or "").partition(TRELLIS)[2].partition("+")[0] or 1)

    @property
    def columns_count(self) -> int:
        """Return the number of columns with steps of their own."""
        return self.shape[1] if self.has_columns else 0

    @property
    def is_rotated(self) -> bool:
        return self.scale is not None and self.scale.endswith(ROTATED)

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """Return rows and columns of the codes."""
        return (self.shape[0], math.prod(self.shape[1:])) if len(self.shape) > 1 else (1, self.numel)

    @property
    def role(self) -> str:
        """Return the name without layer numbers."""
        # Tensors of different layers differ in the number alone and share their order and statistics.
        return re.sub(r"\d+", "#", self.name)


def entry_of(name: str, tensor: CodedTensor) -> Entry:
    """Return the form of a coded tensor with one byte per code."""
    scale = None if tensor.scale is None else "all"
    if tensor.own is not None:
        scale = OWN + tensor.own.name
    elif tensor.scale is not None and in_groups(tensor):
        scale = f"{GROUP}{tensor.data.numel() // tensor.scale.numel()}"
    elif tensor.scale is not None and tensor.scale.ndim:
        if (tensor.data.ndim, *tensor.scale.shape) != (2, len(tensor.data)):
            raise ValueError(f"{name} has {tensor.scale.numel()} scales: one for each row of a matrix, or a single one")
        # The suffixes stand in the order in which SCALES reads them.
        on_trellis = f"{TRELLIS}{tensor.states}" if tensor.states > 1 else ""
        scale = f"row{COLUMNS if tensor.has_columns else ''}{on_trellis}{ROTATED if tensor.rotated else ''}"
    stored, dtype = DTYPE_NAMES[tensor.data.dtype], DTYPE_NAMES[tensor.dtype]
    return Entry(name, stored, dtype, tuple(tensor.data.shape), scale, tensor.own)


def write_header(model: ModelConfig, tech: Tech | None, entries: Iterable[Entry]) -> bytes:
    """Return the header as JSON without spaces."""
    # Label and starting weights do not shape the model, and every byte of the header counts.
    shape = {k: v for k, v in dataclasses.asdict(model).items() if k not in ("name", "init_from")}
    settings = {name: dataclasses.asdict(technique) for name, technique in (tech or {}).items()}
    tensors = [[e.name, e.stored, e.dtype, list(e.shape), e.scale] for e in entries]
    return json.dumps({"model": shape, "tech": settings, "tensors": tensors}, separators=(",", ":")).encode()


def read_header(content: bytes, tech: Tech) -> tuple[dict[str, Any], list[Entry]]:
    """Parse a header into its JSON values, for `read_model`, and its entries, which `check_entries` checks.

    `tech` are the techniques that it names.
    """
    values = json.loads(content)
    own = own_formats(tech) if has_formats(tech) else None
    return values, [
        Entry(n, stored, dtype, tuple(shape), scale, own and own.get(str(scale).removeprefix(OWN)))
        for n, stored, dtype, shape, scale in values["tensors"]
    ]


def check_entries(entries: Sequence[Entry]) -> None:
    """Raise `ValueError` for impossible entries. Entries of a wrong type raise other errors of `NOT_INTACT`."""
    for entry in entries:
        _check_entry(entry.name, entry.stored, entry.dtype, entry.shape, entry.scale)
        if (entry.scale or "").startswith(OWN) and (entry.own is None or not entry.has_codes):
            raise ValueError(f"none of its techniques has the number format of {entry.name}")
    if len({entry.name for entry in entries}) != len(entries):
        raise ValueError("a tensor is listed twice")
    # Entries that are possible one by one may still ask for too much memory together.
    if sum(entry.numel + math.prod(entry.scale_shape) + entry.columns_count for entry in entries) > MAX_CONTENT_BYTES:
        raise ValueError(f"its tensors have more than {MAX_CONTENT_BYTES} values")


def read_model(values: Mapping[str, Any]) -> tuple[ModelConfig, dict[str, Any]]:
    """Return the model's shape and its techniques. Raises `GolfError` if they cannot be built."""
    model = from_dict(ModelConfig, values["model"])
    # The shape comes from a file, so it is checked like one that a user sets.
    check_model(model)
    return model, techniques_from_dict(values["tech"])


def _check_entry(name: Any, stored: Any, dtype: Any, shape: Any, scale: Any) -> None:
    known = (
        isinstance(name, str)
        and (stored in DTYPES or stored in PACKED)
        and dtype in DTYPES
        and (scale is None or SCALES.fullmatch(scale))
    )
    if not known or (stored in PACKED and scale is None):
        raise ValueError("a tensor has an unknown form")
    if stored != "i8" and stored not in PACKED and (COLUMNS in (scale or "") or TRELLIS in (scale or "")):
        raise ValueError("column steps and trellises need codes")
    # `type` and not `isinstance`, because JSON's true would pass for the number 1.
    if len(shape) > MAX_DIMENSIONS or any(type(n) is not int or not 0 <= n <= MAX_CONTENT_BYTES for n in shape):
        raise ValueError("a tensor has an impossible shape")
    if scale not in (None, "all") and not scale.startswith(OWN) and len(shape) != 2:
        raise ValueError("what is not a matrix has a scale a row")
    if (scale or "").startswith(GROUP) and shape[1] % int(scale.removeprefix(GROUP)):
        raise ValueError("the rows of a matrix do not divide into its groups")
    if (scale or "").endswith(ROTATED) and not shape[1]:
        raise ValueError("a matrix without columns cannot be rotated")
