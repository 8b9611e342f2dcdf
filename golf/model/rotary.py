"""Rotary position embedding, half-split pairing: channel j turns together with channel j + D/2."""

from __future__ import annotations

import torch
from torch import Tensor


def rotary_tables(seq_len: int, head_dim: int, base: float, like: Tensor) -> tuple[Tensor, Tensor]:
    """Tables `(cos, sin)` for positions 0..T-1, each `[1, T, 1, D/2]`, computed in float32, given in `like.dtype`.

    Source: RoFormer, arXiv 2104.09864; frequencies are base^(-2j/D) for j = 0..D/2-1.
    """
    channel = torch.arange(0, head_dim, 2, dtype=torch.float32, device=like.device)
    position = torch.arange(seq_len, dtype=torch.float32, device=like.device)
    angle = torch.outer(position, base ** (-channel / head_dim))[None, :, None, :]
    return angle.cos().to(like.dtype), angle.sin().to(like.dtype)


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate every head of `x` `[B, T, H, D]`: (a, b) → (a·cos + b·sin, b·cos - a·sin) over the two halves."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos + b * sin, b * cos - a * sin), dim=-1)
