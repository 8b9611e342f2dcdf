"""Number formats by name: symmetric integer codes with a scale per row, clipping, Hadamard rotation, and decoding.

A technique may give a further format, an `OwnFormat`, which `quant.*.format` then names.

Source: the public baseline's `int8_clean_per_row_v1`. The other integer formats differ in the largest code only.
The rotation happens offline: W·H is quantized, and the model loads (W·H)·H = W.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from golf.artifact.quant.columns import column_steps
from golf.artifact.quant.trellis import path_offsets, path_order
from golf.settings.config import (
    QuantConfig,
    TensorQuant,
    has_formats,
    scale_floor,
)

Tech = Mapping[str, Any]  # settings of techniques by name
Tensors = Mapping[str, Tensor]  # by name, such as a state dict
LARGEST_CODE = 127  # largest code where bits are paid by use: under column steps and on a trellis


@dataclass(frozen=True)
class CodedTensor:
    """A tensor as it is stored. `data` holds int8 codes if there is a `scale`, else plain values."""

    data: Tensor
    scale: Tensor | None  # float16 [rows] or [groups] for matrices, float32 [] for other shapes
    dtype: torch.dtype  # dtype of the decoded tensor
    rotated: bool = False  # True: the codes are those of the matrix times a Hadamard matrix
    columns: Tensor | None = None  # int8 [columns]: steps of the columns over those of the rows, see `column_steps`
    states: int = 1  # states of the trellis on which the codes lie; 1 = none
    own: Any = None  # the OwnFormat of a technique; not its type, which scripts without one need not have

    @property
    def has_columns(self) -> bool:
        return self.columns is not None

    @property
    def payload_bytes(self) -> int:
        return sum(part.nbytes for part in (self.data, self.scale, self.columns) if part is not None)


def in_groups(coded: CodedTensor) -> bool:
    """Tell whether a row has several scales."""
    scale, data = coded.scale, coded.data
    return scale is not None and scale.ndim == 1 and data.ndim == 2 and len(scale) > len(data)


CodedTensors = Mapping[str, CodedTensor]  # by name: a state dict as it is stored


@dataclass(frozen=True)
class Format:
    """Codes up to ±(2^(bits-1) - 1) with a scale for every row, or one for what is no matrix; or floats of `dtype`."""

    bits: int  # of a number, before compression and without scales
    dtype: torch.dtype = torch.int8

    def scale_bits(self, shape: tuple[int, ...]) -> int:
        """Return the bits of the scales of a tensor."""
        return 0 if self.dtype.is_floating_point else 16 * shape[0] if len(shape) == 2 else 32

    def encode(self, tensor: Tensor, how: TensorQuant, quant: QuantConfig) -> CodedTensor:
        """Return the stored form of a float tensor."""
        return encode_float(tensor, how.format) if self.dtype.is_floating_point else encode_integer(tensor, how, quant)


class OwnFormat(Protocol):
    """Base of a technique's number format: int8 codes of the tensor's shape, and scales of sixteen bits.

    It has the technique's name. The artifact names it, and only the technique can read it.
    """

    name: str
    bits: int  # of a code when codes are packed: from -2^(bits-1) to 2^(bits-1) - 1
    scale_dtype: ClassVar[torch.dtype] = torch.float16  # or bfloat16

    def codes(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return int8 codes of the shape of `w`, float32 of any shape, and the scales `[n]`."""

    def values(self, codes: Tensor, scales: Tensor) -> Tensor:
        """Return the float32 tensor that codes and scales stand for, of the codes' shape."""

    def scale_count(self, shape: tuple[int, ...]) -> int:
        """Return the number n of scales of a tensor; 0 for one without elements."""

    def scale_bits(self, shape: tuple[int, ...]) -> int:
        return 16 * self.scale_count(shape)

    def encode(self, tensor: Tensor, how: TensorQuant, quant: QuantConfig) -> CodedTensor:
        codes, scales = self.codes(tensor.detach().float())
        return CodedTensor(codes, scales, tensor.dtype, own=self)


INTEGERS = {f"int{bits}": Format(bits) for bits in range(8, 3, -1)} | {"ternary": Format(2)}
QMAX = {name: (1 << form.bits - 1) - 1 for name, form in INTEGERS.items()}
FLOAT_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
FORMATS = INTEGERS | {name: Format(8 * dtype.itemsize, dtype) for name, dtype in FLOAT_DTYPES.items()}


def formats_of(tech: Tech | None) -> Mapping[str, Format | OwnFormat]:
    """Return all number formats by name: golf's, and those that the techniques `tech` give."""
    return {**FORMATS, **own_formats(tech)} if tech and has_formats(tech) else FORMATS


def own_formats(tech: Tech) -> dict[str, OwnFormat]:
    """Return the number formats that the techniques `tech` give, by name."""
    found = ((name, technique.number_format()) for name, technique in tech.items())
    return {name: form for name, form in found if form is not None}


def encode_integer(tensor: Tensor, how: TensorQuant, quant: QuantConfig) -> CodedTensor:
    """Code a float tensor in the integer format and with the clip of `how`, rounding to the nearest code.

    A matrix gets one float16 scale per row. Any other shape gets one float32 scale without a floor. The codes are
    computed with the float32 scale, as in the public baseline, or with the stored scale under
    `quant.scale_rounding=before`. With several clips each row keeps the one of least squared error.
    """
    qmax, w = QMAX[how.format], tensor.detach().float()
    if w.ndim != 2:
        return _encode_with_one_scale(tensor, w, how, qmax)
    if 0 < how.group_size < w.size(1) and w.size(1) % how.group_size == 0:
        # Groups are rows of a longer matrix.
        groups = encode_integer(w.view(-1, how.group_size), how, quant)
        return CodedTensor(groups.data.view(w.shape), groups.scale, tensor.dtype)
    rotated = how.rotation == "hadamard"
    if rotated:
        w = rotate(w)
    clips = row_clips(w, how, qmax)
    if how.clip == "search" and len(clips) > 1:
        scales = [as_stored(row_scale(clip, qmax, scale_floor(how, quant))) for clip in clips]
        codes, scale = nearest_codes(w, scales, qmax, quant)
    else:
        clip, scale = clips[0], row_scale(clips[0], qmax, scale_floor(how, quant))
        before = quant.scale_rounding == "before" or (quant.scale_rounding == "below_int8" and how.format != "int8")
        scale = as_stored(scale) if before else scale
        clipped = torch.maximum(torch.minimum(w, clip[:, None]), -clip[:, None])
        codes = (clipped / scale[:, None]).round().clamp(-qmax, qmax)
    return CodedTensor(codes.to(torch.int8), scale.to(torch.float16), tensor.dtype, rotated)


def nearest_codes(w: Tensor, scales: list[Tensor], qmax: int, quant: QuantConfig) -> tuple[Tensor, Tensor]:
    """Return codes `[r, c]` and, for each row of `w` or for all of them, the scale `[r]` of least squared error."""
    best_error = w.new_full((w.size(0),), torch.inf)
    best_codes, best_scale = torch.zeros_like(w), w.new_zeros(w.size(0))
    for scale in scales:
        codes = (w / scale[:, None]).round().clamp(-qmax, qmax)
        error = (codes * scale[:, None] - w).square().sum(1)
        if quant.chosen_by == "matrix":
            error = error.sum().expand_as(error)
        better = error < best_error
        best_error = torch.where(better, error, best_error)
        best_codes = torch.where(better[:, None], codes, best_codes)
        best_scale = torch.where(better, scale, best_scale)
    return best_codes, best_scale


def _encode_with_one_scale(tensor: Tensor, w: Tensor, how: TensorQuant, qmax: int) -> CodedTensor:
    # A search chooses a clip for each row, and here all values share one.
    if how.clip == "search":
        how = dataclasses.replace(how, clip="quantile")
    clip = float(row_clips(w.reshape(1, -1), how, qmax)[0])
    # Zeros are zero at any scale, but a scale of zero would divide them.
    scale = torch.tensor(clip / qmax if clip > 0 else 1.0)
    return CodedTensor((w.clamp(-clip, clip) / scale).round().clamp(-qmax, qmax).to(torch.int8), scale, tensor.dtype)


def encode_float(tensor: Tensor, fmt: str) -> CodedTensor:
    """Store a tensor as `fp16` or `fp32`. Decoding restores its original dtype."""
    return CodedTensor(tensor.detach().to(FLOAT_DTYPES[fmt]), None, tensor.dtype)


def decode(coded: CodedTensor) -> Tensor:
    """Return the tensor that the stored form stands for, in its original dtype.

    Decoding goes backwards through coding: grid and steps in units of the row's step, the row's step, the rotation.
    """
    if coded.scale is None:
        return coded.data.to(coded.dtype)
    if coded.own is not None:
        return coded.own.values(coded.data, coded.scale).to(coded.dtype)
    values = coded.data.float()
    if coded.states > 1:
        values += trellis_offsets(coded) / 2
    if coded.has_columns and coded.columns is not None:
        values *= column_steps(coded.columns)
    scale = coded.scale.float()
    if in_groups(coded):
        values = (values.view(len(scale), -1) * scale[:, None]).view_as(values)
    else:
        values = values * (scale[:, None] if scale.ndim else scale)
    if coded.rotated:
        values = rotate(values)
    return values.to(coded.dtype)


def trellis_offsets(coded: CodedTensor) -> Tensor:
    """Return the offset 0 or 1 of every code of a tensor on a trellis, int8 `[r, c]`."""
    # The trellis takes the columns in an order of its own; the second index puts them back.
    order = path_order(coded.columns, coded.data.size(1))
    return path_offsets(coded.data[:, order], coded.states)[:, order.argsort()]


SMALLEST_SCALE, LARGEST_SCALE = 2.0**-24, 65504.0  # smallest positive and largest finite float16


def row_clips(w: Tensor, how: TensorQuant, qmax: int) -> list[Tensor]:
    """Return candidate clips for the rows of `w` `[r, c]`, each `[r]`. Only `search` gives more than one.

    quantile: a quantile of |w|, as in the public baseline. search: several quantiles (GPTQ-lite, PR #414). std: k
    standard deviations, so that the entropy of the codes does not depend on the size of the weights (SDClip, record
    2026-04-05_SP8192). matrix_std: k deviations of the whole matrix, one step for all rows. absmean: qmax times the
    mean of |w|, for ternary codes (BitNet b1.58, arXiv 2402.17764).
    """
    # An empty matrix has no quantile and no deviation.
    if w.numel() == 0:
        return [w.new_zeros(w.size(0))]
    if how.clip == "std":
        # A single value has no sample deviation, so its correction is left out.
        clip = how.clip_k * w.std(1, correction=min(1, w.size(1) - 1))
        # Equal gains have a large mean and no spread: k deviations would cut all of them off.
        return [torch.where(clip < w.mean(1).abs(), w.abs().amax(1), clip)]
    if how.clip == "matrix_std":
        return [(how.clip_k * w.std(correction=min(1, w.numel() - 1))).expand(w.size(0))]
    if how.clip == "absmean":
        return [qmax * w.abs().mean(1)]
    quantiles = how.clip_search if how.clip == "search" else [how.clip_quantile]
    magnitudes = w.abs()
    # Fake quantization does this in every pass: the maximum needs no sorting, and all other quantiles need one.
    ordered = magnitudes.sort(dim=1).values if set(quantiles) - {1.0} else magnitudes
    return [magnitudes.amax(1) if quantile == 1.0 else row_quantile(ordered, quantile) for quantile in quantiles]


def row_quantile(ordered: Tensor, quantile: float) -> Tensor:
    """Return the quantile of every row of `ordered` `[r, c]`, whose rows rise, `[r]`: `torch.quantile`, bit for bit."""
    # Torch 2.11 cannot compile torch.quantile, which fake quantization needs in every step.
    rank = ordered.new_full((), quantile) * (ordered.size(1) - 1)
    below, above = ordered[:, torch.stack((rank.floor(), rank.ceil())).long()].unbind(1)
    return below.lerp(above, rank - rank.floor())


def row_scale(clip: Tensor, qmax: int, scale_floor: str) -> Tensor:
    """Return the step between codes for each row, `[r]`: clip / qmax within the range of float16.

    The floor `one_over_qmax` keeps it at 1 / qmax or more, the floor `eps` just above zero.
    """
    return (clip / qmax).clamp(1.0 / qmax if scale_floor == "one_over_qmax" else SMALLEST_SCALE, LARGEST_SCALE)


def as_stored(scale: Tensor) -> Tensor:
    """Round `scale` to float16 and return it as float32."""
    # float16 turns small scales into zero, which divides, and large ones into infinity.
    return scale.half().float().clamp(SMALLEST_SCALE, LARGEST_SCALE)


def block_size(columns: int) -> int:
    """Return the largest power of two that divides `columns`: the block width of the rotation."""
    return columns & -columns


def rotate(matrix: Tensor) -> Tensor:
    """Multiply `matrix` `[r, c]`, float32 or wider, by the block-diagonal Sylvester-Hadamard matrix."""
    # Sylvester's matrices have sizes of powers of two; any other width is rotated in blocks.
    block = block_size(matrix.size(1))
    x = matrix.reshape(matrix.size(0), -1, block)
    width = 1
    while width < block:
        a, b = x.reshape(*x.shape[:2], -1, 2, width).unbind(-2)
        x = torch.stack((a + b, a - b), dim=-2).reshape(*x.shape)
        width *= 2
    # This factor makes the rotation orthogonal, and so its own inverse.
    return (x * block**-0.5).reshape(matrix.shape)
