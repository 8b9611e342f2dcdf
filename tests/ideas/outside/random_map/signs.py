"""Signs that are equal on every machine: bits of a 64-bit linear congruential generator."""

import math

import torch
from torch import Tensor


def signs(rows: int, columns: int, seed: int) -> Tensor:
    """Return ±1/√columns as a float32 tensor `[rows, columns]`."""
    state, found = seed * 2654435761 + 1, []
    for _ in range(rows * columns):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        found.append(1.0 if state >> 63 else -1.0)
    return torch.tensor(found).view(rows, columns) / math.sqrt(columns)
