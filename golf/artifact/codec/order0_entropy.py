"""Order-0 entropy of stored tensors: the bits of an ideal coder without context."""

from __future__ import annotations

import torch
from torch import Tensor

from golf.artifact.quant.formats import CodedTensor


def stored_entropy_bits(coded: CodedTensor) -> float:
    """Return the order-0 entropy of a stored tensor in bits: of its codes, and of floats per byte plane."""
    planes = [coded.data] if coded.data.dtype == torch.int8 else _byte_planes(coded.data)
    planes += _byte_planes(coded.scale) if coded.scale is not None else []
    planes += [coded.columns] if coded.columns is not None else []
    return sum(_entropy_bits(plane) for plane in planes)


def _byte_planes(values: Tensor) -> list[Tensor]:
    return list(values.contiguous().flatten().view(torch.uint8).view(-1, values.dtype.itemsize).T)


def _entropy_bits(symbols: Tensor) -> float:
    # bincount takes no negative numbers, and codes go down to -128.
    counts = torch.bincount(symbols.flatten().to(torch.int64) + 128).double()
    # A symbol that does not occur takes no bits, but its logarithm is infinite.
    counts = counts[counts > 0]
    return float(-(counts * (counts / counts.sum()).log2()).sum())
