"""Hadamard rotation of a matrix's columns, offline: what is quantized is W·H, what the model gets is (W·H)·H = W.

The rotation spreads outliers over a block of columns. It is orthonormal, symmetric and its own inverse.
Source: "QuIP-lite", PR #586; rejected in PR #670 (-0.0002 bpb for a larger file).
"""

from __future__ import annotations

import torch
from torch import Tensor


def block_size(columns: int) -> int:
    """Largest power of two that divides `columns`: the width of a block of the rotation."""
    return columns & -columns


def rotate(matrix: Tensor) -> Tensor:
    """`matrix` `[r, c]` times the block-diagonal Sylvester-Hadamard matrix, by a fast transform; float32 or wider."""
    block = block_size(matrix.size(1))
    x = matrix.reshape(matrix.size(0), -1, block)
    width = 1
    while width < block:
        pairs = x.reshape(*x.shape[:2], -1, 2, width)
        a, b = pairs.unbind(-2)
        x = torch.stack((a + b, a - b), dim=-2).reshape(*x.shape)
        width *= 2
    return (x * block**-0.5).reshape(matrix.shape)
