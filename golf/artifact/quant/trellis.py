"""Trellis-coded quantization: which half of a twice finer grid each code stands on.

The points n·step/2 are split by n mod 4 into four subsets. A state of the trellis allows two of them, those of one
parity: a code k at offset o (0 or 1) stands for (k + o/2)·step, and its own parity leads to the next state. A decoder
needs the codes of a row and a table. Source: Marcellin and Fischer 1990; the convolutional codes are Ungerboeck's for
one dimension (1982).
"""

from __future__ import annotations

import torch
from torch import Tensor

PARITY_CHECKS = {4: (0o5, 0o2), 8: (0o13, 0o04), 16: (0o23, 0o04)}  # states → h⁰, h¹


def transitions(states: int) -> tuple[Tensor, Tensor]:
    """Return the next state for an even and an odd code `[states, 2]`, and the offset of each state `[states]`."""
    # With h⁰ = 1 + … the parity check gives the lower label bit from the past: it is the state's lowest bit.
    h0, h1 = PARITY_CHECKS[states]
    state = torch.arange(states)
    offset = state & 1
    return torch.stack([state >> 1 ^ offset * (h0 >> 1) ^ parity * (h1 >> 1) for parity in (0, 1)], dim=1), offset


def path_offsets(codes: Tensor, states: int) -> Tensor:
    """Return the offsets 0 or 1 of `codes` int8 `[r, c]`, whose columns are in the order of the path."""
    following, offset = transitions(states)
    state, found = torch.zeros(codes.size(0), dtype=torch.int64), torch.empty(codes.T.shape, dtype=torch.int8)
    parities = (codes.T & 1).long()
    # A file may state columns without rows.
    for j, parity in enumerate(parities if codes.numel() else []):
        found[j] = offset[state]
        state = following[state, parity]
    return found.T


def path_order(columns: Tensor | None, count: int) -> Tensor:
    """Return the columns in the order in which the trellis takes them: from small steps to large ones."""
    return torch.arange(count) if columns is None else columns.argsort(stable=True)
