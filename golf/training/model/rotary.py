"""Rotary position embedding, half-split pairing: channel j turns together with channel j + R/2."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

Length = tuple[int, torch.device, torch.dtype]  # of a sequence, and what its tables are for


@dataclass(frozen=True)
class Rotary:
    """The channels that turn and their frequencies: the first `dims` of a head, at base^(-2j/dims).

    With a `reference_len`, the base grows by (T / reference_len)^(dims / (dims - 2)) for longer sequences of T tokens
    (NTK scaling). T is that of the call, or `seq_len` where that is given, which makes it independent of the call.

    A compiled graph reads the tables of lengths that were kept before. Those of other lengths are part of the graph,
    where a compiler computes every cosine and sine again for every head and sequence.
    """

    dims: int
    base: float
    reference_len: int | None = None
    seq_len: int | None = None
    kept: dict[Length, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def keep(self, seq_len: int, like: Tensor) -> None:
        """Make the tables for sequences of `seq_len` tokens now, on the device and in the dtype of `like`."""
        self.kept[seq_len, like.device, like.dtype] = self._made(seq_len, like)

    def base_for(self, seq_len: int) -> float:
        """Return the base for sequences of `seq_len` tokens."""
        length = self.seq_len or seq_len
        # With two channels there is one frequency, base^0, and the exponent below would divide by zero.
        if self.reference_len is None or length <= self.reference_len or self.dims == 2:
            return self.base
        return self.base * (length / self.reference_len) ** (self.dims / (self.dims - 2))

    def frequencies(self, seq_len: int, device: torch.device) -> Tensor:
        """Return the radians per token of every pair of channels, float32 `[dims/2]`."""
        channel = torch.arange(0, self.dims, 2, dtype=torch.float32, device=device)
        return self.base_for(seq_len) ** (-channel / self.dims)

    def tables(self, seq_len: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return `(cos, sin)` for positions 0..T-1, each `[1, T, 1, dims/2]` in `like.dtype`, computed in float32.

        Source: RoFormer, arXiv 2104.09864.
        """
        kept = self.kept.get((seq_len, like.device, like.dtype))
        return self._made(seq_len, like) if kept is None else kept

    def _made(self, seq_len: int, like: Tensor) -> tuple[Tensor, Tensor]:
        # Angles are formed in float32, because bf16 cannot tell positions above 256 apart.
        position = torch.arange(seq_len, dtype=torch.float32, device=like.device)
        angle = torch.outer(position, self.frequencies(seq_len, like.device))[None, :, None, :]
        return angle.cos().to(like.dtype), angle.sin().to(like.dtype)


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate every head of `x` `[B, T, H, D]`: (a, b) → (a·cos + b·sin, b·cos - a·sin); other channels pass.

    The tables are `[1, T, 1, R/2]`, or `[B, T, 1, R/2]` where rows have positions of their own.
    """
    dims = 2 * cos.size(-1)
    turning, still = (x, None) if dims == x.size(-1) else (x[..., :dims], x[..., dims:])
    a, b = turning.chunk(2, dim=-1)
    parts = (a * cos + b * sin, b * cos - a * sin)
    return torch.cat(parts if still is None else (*parts, still), dim=-1)
