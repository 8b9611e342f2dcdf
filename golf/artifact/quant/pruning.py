"""Pruning of codes after rounding: the cheapest codes become zero, because zeros compress.

Source: selective ±1 pruning of PR #609 and PR #1019. It never ran there, since its target of 15.9 MiB is above the
cap. PR #670: pruning less than 10 % is free, 28 to 37 % costs 0.004 to 0.005 bpb.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from golf.artifact.quant.columns import column_steps
from golf.artifact.quant.formats import CodedTensor, CodedTensors
from golf.settings.config import QuantConfig

MOST_PACKS = 8
GRID, SYMBOLS = 64, 256
MARGIN_BYTES = 2000  # bytes that pruning to the cap leaves free
CLOSE = 0.0005  # the search stops once the file is this close below the target, as a share of it


class Pruning:
    """The codes ±1 of some tensors, ordered by the squared error that zeroing each of them adds.

    Ties keep the order of the tensors.
    """

    def __init__(self, coded: CodedTensors, names: Sequence[str]):
        self.coded, self.names = coded, names
        flat = [coded[name].data.flatten() for name in names]
        self.values = torch.cat(flat) if flat else torch.zeros(0, dtype=torch.int8)
        found = (self.values.abs() == 1).nonzero().flatten()
        scales = [_scale_of_each_code(coded[name]) for name in names]
        costs = (self.values[found] * torch.cat(scales)[found]).square() if scales else torch.zeros(0)
        self.order = found[costs.argsort(stable=True)]

    @property
    def most(self) -> int:
        """Return the number of codes that may be zeroed."""
        return self.order.numel()

    def first(self, count: int) -> dict[str, CodedTensor]:
        """Return all tensors with the cheapest `count` codes zeroed."""
        values = self.values.clone()
        values[self.order[:count]] = 0
        pruned, start = dict(self.coded), 0
        for name in self.names:
            shape = self.coded[name].data.shape
            data = values[start : start + shape.numel()].view(shape)
            pruned[name], start = dataclasses.replace(self.coded[name], data=data), start + shape.numel()
        return pruned

    def entropy_bytes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return counts of zeroed codes and, for each count, the order-0 entropy of the codes in bytes."""
        sizes = torch.tensor([self.coded[name].data.numel() for name in self.names])
        tensor = torch.arange(len(sizes)).repeat_interleave(sizes)
        # Every tensor gets a histogram of its own by an offset to its codes.
        symbol = tensor * SYMBOLS + self.values.to(torch.int64) + SYMBOLS // 2
        histogram = torch.bincount(symbol, minlength=len(sizes) * SYMBOLS).view(-1, SYMBOLS)
        counts, entropy = [0], [_entropy_bytes(histogram)]
        for part in self.order.chunk(GRID):
            gone = torch.bincount(symbol[part], minlength=len(sizes) * SYMBOLS).view(-1, SYMBOLS)
            histogram = histogram - gone
            # The bin in the middle is that of zero.
            histogram[:, SYMBOLS // 2] += gone.sum(1)
            counts.append(counts[-1] + part.numel())
            entropy.append(_entropy_bytes(histogram))
        # Interpolation needs an entropy that never rises with the count.
        return np.array(counts), np.minimum.accumulate(entropy)


def prune_to_fit(
    pruning: Pruning, packed_bytes: Callable[[CodedTensors], int], target_bytes: int
) -> tuple[dict[str, CodedTensor], int] | None:
    """Zero as few codes as bring `packed_bytes` down to `target_bytes`. Returns the tensors and the count.

    Packing is slow. The count is therefore interpolated along the entropy of the codes, in at most `MOST_PACKS` packs,
    and is slightly larger than necessary. Returns None if zeroing all codes is not enough.
    """
    over, size_over = 0, packed_bytes(pruning.first(0))
    if size_over <= target_bytes:
        return pruning.first(0), 0
    fits, size_fits = pruning.most, packed_bytes(pruning.first(pruning.most))
    if size_fits > target_bytes:
        return None
    counts, entropy = pruning.entropy_bytes()
    wanted = target_bytes * (1 - CLOSE / 2)
    # Two packs have been spent on the ends.
    for _ in range(MOST_PACKS - 2):
        if fits - over <= 1 or target_bytes - size_fits <= CLOSE * target_bytes:
            break
        at_over, at_fits = np.interp([over, fits], counts, entropy)
        there = at_over + (size_over - wanted) / (size_over - size_fits) * (at_fits - at_over)
        count = int(np.interp(-there, -entropy, counts))
        # Every pack has to narrow the range.
        count = min(max(count, over + 1), fits - 1)
        size = packed_bytes(pruning.first(count))
        if size <= target_bytes:
            fits, size_fits = count, size
        else:
            over, size_over = count, size
    return pruning.first(fits), fits


def without_smallest(tensor: Tensor, quant: QuantConfig) -> Tensor:
    """Return a matrix of more than `quant.small_numel` weights with the smallest share of them set to zero.

    The share is `quant.prune.weights`; other tensors come back as they are. Source: record
    2026-03-20_10L_Int5MLP_MuonWD04_SWA50, with 3 %.
    """
    if not tensor.is_floating_point() or tensor.ndim != 2 or tensor.numel() <= quant.small_numel:
        return tensor
    magnitudes = tensor.detach().abs().float()
    threshold = float(np.quantile(magnitudes.cpu().numpy(), quant.prune.weights))
    return tensor.detach().masked_fill(magnitudes < threshold, 0.0)


def _scale_of_each_code(tensor: CodedTensor) -> Tensor:
    assert tensor.scale is not None
    scale = tensor.scale.float()
    steps = (scale[:, None] if scale.ndim else scale).expand(tensor.data.shape)
    return (steps if tensor.columns is None else steps * column_steps(tensor.columns)).flatten()


def _entropy_bytes(histogram: Tensor) -> float:
    count = histogram.double()
    return float(-torch.special.xlogy(count, count / count.sum(1, keepdim=True)).sum() / math.log(256))
