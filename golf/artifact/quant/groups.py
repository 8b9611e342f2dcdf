"""The base of number formats with a scale for each group of neighbouring weights, along the row-major order."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from golf.artifact.quant.formats import OwnFormat


@dataclass(frozen=True)
class GroupFormat(OwnFormat):
    """A technique's format whose scales are those of groups; the last group of a tensor may have fewer weights."""

    name: str
    group: int  # weights that share a scale

    def means(self, w: Tensor) -> Tensor:
        """Return the mean of each group of `w`, float32 `[n]`."""
        flat = w.flatten()
        sums = torch.cat((flat, flat.new_zeros(-flat.numel() % self.group))).view(-1, self.group).sum(1)
        sizes = torch.full_like(sums, self.group)
        if len(sizes):
            sizes[-1] = flat.numel() - self.group * (len(sizes) - 1)
        return sums / sizes

    def per_weight(self, scales: Tensor, shape: torch.Size) -> Tensor:
        """Return the scale of every weight of a tensor, float32 of its shape."""
        return scales.float().repeat_interleave(self.group)[: shape.numel()].view(shape)

    def scale_count(self, shape: tuple[int, ...]) -> int:
        """Return the number of groups."""
        return -(-torch.Size(shape).numel() // self.group)
