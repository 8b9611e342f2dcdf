"""Symmetric integer codes with a scale per row, and their way back.

Source: the public baseline's `int8_clean_per_row_v1`; int6 is the same with 31 in place of 127.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from golf.quant.rotation import rotate

QMAX = {"int8": 127, "int7": 63, "int6": 31, "int5": 15, "int4": 7}
SMALLEST_SCALE = 2.0**-24  # what float16 can still tell from zero
FLOAT_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True)
class CodedTensor:
    """One tensor as it is stored. `data` holds integer codes (int8) if there is a `scale`, else plain values."""

    data: Tensor
    scale: Tensor | None  # float16 [rows] for matrices, float32 [] for other shapes
    dtype: torch.dtype  # of the tensor that `decode` gives back
    rotated: bool = False  # the codes stand for the matrix times a Hadamard matrix

    @property
    def payload_bytes(self) -> int:
        scale_bytes = 0 if self.scale is None else self.scale.nbytes
        return self.data.nbytes + scale_bytes


def encode_integer(
    tensor: Tensor, fmt: str, *, clip_quantile: float, scale_floor: str, clip_search: Sequence[float] = ()
) -> CodedTensor:
    """Code a float tensor as `fmt`, a key of `QMAX`.

    Rows of a matrix are clipped at their `clip_quantile` of |w| and divided by clip / qmax, which is not let below
    1 / qmax if `scale_floor` is `one_over_qmax`, and only just above zero if it is `eps`. Tensors of other ranks get
    one scale. Codes are computed with the float32 scale, as in the public baseline; float16 is stored. With a
    `clip_search`, each row takes the quantile of the list that costs it the least squared error instead.
    """
    qmax, w = QMAX[fmt], tensor.detach().float()
    if w.ndim != 2:
        return _encode_with_one_scale(tensor, w, qmax, clip_quantile)
    if clip_search:
        return _encode_with_best_clip(tensor, w, qmax, scale_floor, clip_search)
    clip = row_clip(w, clip_quantile)
    scale = _floored(clip / qmax, qmax, scale_floor)
    clipped = torch.maximum(torch.minimum(w, clip[:, None]), -clip[:, None])
    codes = (clipped / scale[:, None]).round().clamp(-qmax, qmax).to(torch.int8)
    return CodedTensor(codes, scale.to(torch.float16), tensor.dtype)


def _encode_with_best_clip(
    tensor: Tensor, w: Tensor, qmax: int, scale_floor: str, quantiles: Sequence[float]
) -> CodedTensor:
    """GPTQ-lite (PR #414), choosing by row instead of by tensor and with the scale that will be stored."""
    best_error = w.new_full((w.size(0),), torch.inf)
    best_codes, best_scale = torch.zeros_like(w, dtype=torch.int8), w.new_zeros(w.size(0))
    for quantile in quantiles:
        scale = row_scale(w, qmax, quantile, scale_floor).half().float().clamp_min(SMALLEST_SCALE)
        codes = (w / scale[:, None]).round().clamp(-qmax, qmax)
        error = (codes * scale[:, None] - w).square().sum(1)
        better = error < best_error
        best_error = torch.where(better, error, best_error)
        best_codes = torch.where(better[:, None], codes.to(torch.int8), best_codes)
        best_scale = torch.where(better, scale, best_scale)
    return CodedTensor(best_codes, best_scale.to(torch.float16), tensor.dtype)


def row_clip(w: Tensor, clip_quantile: float) -> Tensor:
    """Magnitude at which each row of a float32 matrix is cut off, `[rows]`."""
    return torch.quantile(w.abs(), clip_quantile, dim=1) if w.numel() else w.new_zeros(w.size(0))


def row_scale(w: Tensor, qmax: int, clip_quantile: float, scale_floor: str) -> Tensor:
    """Size of one step of the codes for each row, `[rows]` float32."""
    return _floored(row_clip(w, clip_quantile) / qmax, qmax, scale_floor)


def _floored(scale: Tensor, qmax: int, scale_floor: str) -> Tensor:
    return scale.clamp_min(1.0 / qmax if scale_floor == "one_over_qmax" else SMALLEST_SCALE)


def _encode_with_one_scale(tensor: Tensor, w: Tensor, qmax: int, clip_quantile: float) -> CodedTensor:
    clip = float(torch.quantile(w.abs().flatten(), clip_quantile)) if w.numel() else 0.0
    scale = torch.tensor(clip / qmax if clip > 0 else 1.0)
    codes = (w.clamp(-clip, clip) / scale).round().clamp(-qmax, qmax).to(torch.int8)
    return CodedTensor(codes, scale, tensor.dtype)


def encode_float(tensor: Tensor, fmt: str) -> CodedTensor:
    """Store as `fp16` or `fp32`; the original dtype comes back on decoding."""
    return CodedTensor(tensor.detach().to(FLOAT_DTYPES[fmt]), None, tensor.dtype)


def decode(coded: CodedTensor) -> Tensor:
    """The tensor that the stored form stands for, in its original dtype."""
    if coded.scale is None:
        return coded.data.to(coded.dtype)
    scale = coded.scale.float()
    values = coded.data.float() * (scale[:, None] if scale.ndim else scale)
    if coded.rotated:
        values = rotate(values)
    return values.to(coded.dtype)
