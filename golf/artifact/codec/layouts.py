"""Layout: the order of an artifact's values before a byte codec compresses them.

Plain: tensor after tensor in the header's order, each followed by its scales. `quant.layout` names the changes to that:

    pack_bits    codes of b bits without gaps, the first one in the lowest bits (PR #1559 for b = 6)
    by_role      tensors of one role side by side, whatever their layer
    sort_rows    rows of codes by their mean magnitude, and 2 or 4 bytes a row for where they belong
    byte_planes  first bytes of all 16-bit values, then their second bytes; likewise for 32 and 64 bits (PR #1089)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from golf.artifact.header import DTYPES, PACKED, Entry
from golf.artifact.quant.formats import CodedTensor
from golf.settings.config import QuantConfig, packs_bits, sorts_roles, sorts_rows, splits_planes

LAYOUT_BITS = {"pack_bits": 1, "by_role": 2, "sort_rows": 4, "byte_planes": 8}


@dataclasses.dataclass(frozen=True)
class Chunk:
    """A run of bytes that belong to one tensor: its length, and the bytes of each value."""

    name: str
    part: str  # data | scale | order | columns
    size: int
    value_bytes: int


def packed_entry(entry: Entry, codes: Tensor) -> Entry:
    """Return the entry with the fewest bits per code that hold its codes."""
    if not entry.has_codes:
        return entry
    lowest, highest = (int(codes.min()), int(codes.max())) if codes.numel() else (0, 0)
    bits = next(b for b in range(1, 9) if -(1 << b - 1) <= lowest and highest < 1 << b - 1)
    return dataclasses.replace(entry, stored=f"i{bits}")


def values_to_bytes(coded: Sequence[tuple[Entry, CodedTensor]], quant: QuantConfig) -> bytes:
    """Return all values in the order of `quant.layout`. With `pack_bits`, the entries come from `packed_entry`."""
    content: dict[tuple[str, str], bytes] = {}
    for entry, tensor in coded:
        data = tensor.data
        if sorts_rows(quant) and _is_sorted(entry):
            # Rows of equal magnitude keep their order, so that the same weights always give the same file.
            order = data.reshape(entry.matrix_shape).float().abs().mean(1).nan_to_num().argsort(stable=True)
            data = data[order]
            content[entry.name, "order"] = to_bytes(order.to(_order_dtype(entry)))
        if packs_bits(quant) and (bits := PACKED.get(entry.stored, 0)):
            content[entry.name, "data"] = pack_bits(data.numpy().flatten().astype(np.int16) + (1 << bits - 1), bits)
        else:
            content[entry.name, "data"] = to_bytes(data)
        if tensor.scale is not None:
            content[entry.name, "scale"] = to_bytes(tensor.scale)
        if tensor.has_columns and tensor.columns is not None:
            content[entry.name, "columns"] = to_bytes(tensor.columns)
    # The header alone tells what lies where, so no lengths are stored.
    chunks = chunks_of((entry for entry, _ in coded), quant)
    joined = b"".join(content[chunk.name, chunk.part] for chunk in chunks)
    return _swap_planes(joined, chunks, to_planes=True) if splits_planes(quant) else joined


def bytes_to_values(content: bytes, entries: Sequence[Entry], quant: QuantConfig) -> dict[str, CodedTensor]:
    """Invert `values_to_bytes`. Raises `ValueError` if there are more or fewer bytes than the entries need."""
    chunks = chunks_of(entries, quant)
    if sum(chunk.size for chunk in chunks) != len(content):
        raise ValueError("its tensors need more or fewer bytes than there are")
    if splits_planes(quant):
        content = _swap_planes(content, chunks, to_planes=False)
    pieces, start = {}, 0
    for chunk in chunks:
        pieces[chunk.name, chunk.part] = content[start : start + chunk.size]
        start += chunk.size
    tensors = {}
    for entry in entries:
        if packs_bits(quant) and entry.stored in PACKED:
            data = _unpacked(entry, pieces[entry.name, "data"])
        else:
            if entry.stored == "bool" and pieces[entry.name, "data"].strip(b"\0\1"):
                raise ValueError("a truth value is neither 0 nor 1")
            data = from_bytes(pieces[entry.name, "data"], DTYPES[entry.stored], entry.shape)
        scale = from_bytes(pieces[entry.name, "scale"], entry.scale_dtype, entry.scale_shape) if entry.scale else None
        if sorts_rows(quant) and _is_sorted(entry):
            order = from_bytes(pieces[entry.name, "order"], _order_dtype(entry), entry.shape[:1]).long() & 0xFFFF_FFFF
            # A row that is named twice would leave another one unset.
            if not torch.equal(order.sort().values, torch.arange(entry.shape[0])):
                raise ValueError("the order of a tensor's rows is no permutation")
            data = torch.empty_like(data).index_copy_(0, order, data)
        columns = None
        if entry.has_columns:
            columns = from_bytes(pieces[entry.name, "columns"], torch.int8, entry.shape[1:])
        rotated, states, own = entry.is_rotated, entry.trellis_states, entry.own
        tensors[entry.name] = CodedTensor(data, scale, DTYPES[entry.dtype], rotated, columns, states, own)
    return tensors


def chunks_of(entries: Iterable[Entry], quant: QuantConfig) -> list[Chunk]:
    """Return the chunks of the content in their order, from the header alone."""
    # The sort is stable: within a role the layers keep their order.
    entries = sorted(entries, key=lambda entry: entry.role) if sorts_roles(quant) else entries
    chunks = []
    for entry in entries:
        if sorts_rows(quant) and _is_sorted(entry):
            width = _order_dtype(entry).itemsize
            chunks.append(Chunk(entry.name, "order", entry.shape[0] * width, width))
        if packs_bits(quant) and entry.stored in PACKED:
            # Packed codes have no bytes of their own that planes could separate.
            width, size = 1, (entry.numel * PACKED[entry.stored] + 7) // 8
        else:
            width = DTYPES[entry.stored].itemsize
            size = entry.numel * width
        chunks.append(Chunk(entry.name, "data", size, width))
        if entry.scale:
            width = entry.scale_dtype.itemsize
            chunks.append(Chunk(entry.name, "scale", math.prod(entry.scale_shape) * width, width))
        if entry.has_columns:
            chunks.append(Chunk(entry.name, "columns", entry.columns_count, 1))
    # Values of one width have to lie side by side to be split into planes together.
    if splits_planes(quant):
        chunks.sort(key=lambda chunk: chunk.value_bytes)
    return chunks


def pack_bits(values: np.ndarray, bits: int) -> bytes:
    """Pack unsigned numbers below 2^`bits`, the first in the lowest bits of the first byte, padded with zero bits."""
    planes = (values[:, None].astype(np.uint16) >> np.arange(bits, dtype=np.uint16)) & 1
    return np.packbits(planes.astype(np.uint8), bitorder="little").tobytes()


def unpack_bits(content: bytes, bits: int, count: int) -> np.ndarray:
    """Invert `pack_bits`: return `count` numbers as int16."""
    planes = np.unpackbits(np.frombuffer(content, np.uint8), count=count * bits, bitorder="little")
    return (planes.reshape(count, bits).astype(np.int16) << np.arange(bits, dtype=np.int16)).sum(1, dtype=np.int16)


def to_bytes(tensor: Tensor) -> bytes:
    """Return a tensor's values, little-endian."""
    return bytes(tensor.contiguous().flatten().view(torch.uint8).numpy())


def from_bytes(content: bytes, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
    """Invert `to_bytes`."""
    # A bytearray, because torch wants memory that it may write to. By numpy, because torch refuses an empty buffer.
    return torch.from_numpy(np.frombuffer(bytearray(content), np.uint8)).view(dtype).view(tuple(shape))


def _unpacked(entry: Entry, content: bytes) -> Tensor:
    bits = PACKED[entry.stored]
    codes = unpack_bits(content, bits, entry.numel) - (1 << bits - 1)
    return torch.from_numpy(codes.astype(np.int8)).view(entry.shape)


def _is_sorted(entry: Entry) -> bool:
    return entry.has_codes and len(entry.shape) > 1


def _order_dtype(entry: Entry) -> torch.dtype:
    return torch.uint16 if entry.shape[0] <= 1 << 16 else torch.int32


def _swap_planes(content: bytes, chunks: Sequence[Chunk], *, to_planes: bool) -> bytes:
    """Turn values into byte planes, or back. `chunks` are sorted by the bytes of their values."""
    sizes: dict[int, int] = {}
    for chunk in chunks:
        sizes[chunk.value_bytes] = sizes.get(chunk.value_bytes, 0) + chunk.size
    start, swapped = 0, []
    for width, size in sizes.items():
        shape = (-1, width) if to_planes else (width, size // width)
        part = np.frombuffer(content[start : start + size], np.uint8).reshape(shape if size else (0, width))
        swapped.append(part.T.tobytes())
        start += size
    return b"".join(swapped)
