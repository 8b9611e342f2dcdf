"""Where the rows of a matrix are cut off: one or several candidates for the magnitude of the largest code."""

from __future__ import annotations

import torch
from torch import Tensor

from golf.config import TensorQuant

SMALLEST_SCALE, LARGEST_SCALE = 2.0**-24, 65504.0  # what float16 can tell from zero and from infinity


def row_clips(w: Tensor, how: TensorQuant, qmax: int) -> list[Tensor]:
    """Candidates for the magnitude at which the rows of `w` `[r, c]` are cut off, each `[r]`; one unless it searches.

    quantile: the public baseline's, of |w|. search: several of them (GPTQ-lite, PR #414). std: k standard deviations,
    which fixes the entropy of the codes whatever the size of the weights (SDClip, record 2026-04-05_SP8192). absmean:
    the largest code stands for qmax times the mean of |w|, for ternary codes (BitNet b1.58, arXiv 2402.17764).
    """
    if w.numel() == 0:
        return [w.new_zeros(w.size(0))]
    if how.clip == "std":
        clip = how.clip_k * w.std(1, correction=min(1, w.size(1) - 1))
        # A row that lies beyond its own clip is no spread around zero, such as gains that are all alike.
        return [torch.where(clip < w.mean(1).abs(), w.abs().amax(1), clip)]
    if how.clip == "absmean":
        return [qmax * w.abs().mean(1)]
    quantiles = how.clip_search if how.clip == "search" else [how.clip_quantile]
    return [torch.quantile(w.abs(), quantile, dim=1) for quantile in quantiles]


def row_scale(clip: Tensor, qmax: int, scale_floor: str) -> Tensor:
    """Size of one step of the codes for each row: clip / qmax within what float16 can hold.

    With the floor `one_over_qmax` it is at least 1 / qmax, with `eps` only just above zero.
    """
    floor = 1.0 / qmax if scale_floor == "one_over_qmax" else SMALLEST_SCALE
    return (clip / qmax).clamp(floor, LARGEST_SCALE)


def as_stored(scale: Tensor) -> Tensor:
    """`scale` as float16 keeps it, in float32."""
    return scale.half().float().clamp(SMALLEST_SCALE, LARGEST_SCALE)
