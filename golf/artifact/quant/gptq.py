"""GPTQ: rounding that changes the layer's output least, not each weight.

For a matrix W `[r, c]` with inputs x the squared change of the output is Σ (w - ŵ)ᵀ H (w - ŵ) over the rows, with
H = Σ x xᵀ `[c, c]`. Columns are rounded one after another, and the later columns compensate for the error of each.
Source: arXiv 2210.17323, in the form of PR #593 and PR #1019. All arithmetic is float64.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from golf.artifact.quant.bit_prices import learned_prices, no_prices
from golf.artifact.quant.columns import column_codes, column_steps, finer_column_codes, least_column_codes
from golf.artifact.quant.formats import (
    LARGEST_CODE,
    QMAX,
    CodedTensor,
    as_stored,
    nearest_codes,
    rotate,
    row_clips,
    row_scale,
)
from golf.artifact.quant.trellis import path_offsets, path_order
from golf.artifact.quant.trellis_rounding import trellis_codes
from golf.errors import GolfError
from golf.settings.config import GPTQConfig, QuantConfig, TensorQuant, scale_floor, uses_columns, uses_trellis

BLOCK_COLUMNS = 128  # columns between updates of all remaining columns; affects speed only
STATES = 8  # states of the trellis
MOST_DAMPING = 100.0  # largest damping, relative to the mean diagonal; a Hessian that needs more is refused
CPU_ROWS = 1024  # rows rounded together on a CPU, so that they stay in its cache
Rounded = tuple[Tensor, Tensor]  # codes [r, c], and the scale of every row [r]
ROUNDING_ERROR = 1e-6  # negative diagonal entries that rounding explains, relative to the largest entry


def encode_gptq(tensor: Tensor, how: TensorQuant, quant: QuantConfig, hessian: Tensor) -> CodedTensor:
    """Code a matrix `[r, c]` by GPTQ in the format and with the clips of `how`. Scales are rounded to float16 first.

    Under `columns` and `rounding=trellis` the format sets the step alone, and codes may use all eight bits. Raises
    `GolfError` if the Hessian cannot be used.
    """
    qmax, w, h = QMAX[how.format], tensor.detach().float(), checked_hessian(hessian, tensor.size(1))
    rotated = how.rotation == "hadamard"
    if rotated:
        w, h = rotate(w), rotate(rotate(h).T)  # the inputs rotate with the columns
    clips = row_clips(w, how, qmax)
    if how.clip_importance > 0:
        clips = [clip * importance(w, h, how.clip_importance) for clip in clips]
    scales = [as_stored(row_scale(clip, qmax, scale_floor(how, quant))) for clip in clips]
    # Under the floor several clips give one scale: rounding with it once is enough.
    different = list(torch.stack(scales).unique(dim=0))
    # If no input was ever seen, `gptq_codes` below rounds to the nearest code.
    if (h.diagonal() > 0).any():
        if uses_trellis(quant) and how.rounding == "trellis":
            return _on_trellis(CodedTensor(w, different[-1], tensor.dtype, rotated), how, quant, h)
        if uses_columns(quant) and (how.columns > 0 or how.finer_columns > 0):
            return _with_column_steps(CodedTensor(w, different[-1], tensor.dtype, rotated), how, quant, h)
    codes, scale = gptq_codes(w, h, different, qmax, quant)
    return CodedTensor(codes.to(torch.int8).cpu(), scale.half().cpu(), tensor.dtype, rotated)


def importance(w: Tensor, hessian: Tensor, share: float) -> Tensor:
    """Return the factor 1 + share·(ρ - 1) on the clip of every row of `w` `[r, c]`, with ρ the row's importance.

    ρ is the mean of |w| weighted by the Hessian's diagonal, over its mean of all rows (Hessian-aware SDClip of record
    2026-04-06_SP8192_HessianSDClip, with share 0.175).
    """
    weighted = (w.abs() * hessian.diagonal().to(w)).mean(1)
    mean = weighted.mean()
    return 1.0 + share * (weighted / mean - 1.0) if mean > 0 else torch.ones_like(weighted)


def _with_column_steps(plain: CodedTensor, how: TensorQuant, quant: QuantConfig, h: Tensor) -> CodedTensor:
    """Return the codes of the float matrix in `plain`, whose scale gives the steps of the rows."""
    assert plain.scale is not None
    inputs = inputs_of(h, quant.gptq)
    if how.finer_columns > 0:
        columns = finer_column_codes(plain.data, h, how.finer_columns)
    else:
        columns = _columns(plain, how, inputs)
    w, scales = plain.data.to(h) / column_steps(columns).to(h), [plain.scale.to(h)]
    by_row = dataclasses.replace(quant, chosen_by="row")
    codes, scale = _codes_of(w, scales, LARGEST_CODE, inputs.in_steps(column_steps(columns)), by_row)
    # An export would take `columns` of dataclasses.replace for a setting that changes.
    return CodedTensor(codes.to(torch.int8).cpu(), scale.half().cpu(), plain.dtype, plain.rotated, columns.cpu())


def _on_trellis(plain: CodedTensor, how: TensorQuant, quant: QuantConfig, h: Tensor) -> CodedTensor:
    """Return the codes on a trellis of the float matrix in `plain`, whose scale gives the steps of the rows."""
    assert plain.scale is not None
    w = plain.data.to(h) / plain.scale.to(h)[:, None]
    columns = None
    if how.columns > 0:
        columns = _columns(plain, how, inputs_of(h, quant.gptq))
        w = w / column_steps(columns).to(h)
    inputs = inputs_of(h, quant.gptq, path_order(columns, w.size(1)).to(h.device))
    if columns is not None:
        inputs = inputs.in_steps(column_steps(columns))
    w, root = (w * (h.diagonal() > 0))[:, inputs.order], inputs.roots[0]
    # Prices come from the histograms of codes, so that a first rounding without prices has to find some.
    codes = trellis_codes(w, root, STATES, no_prices(w))
    if quant.trellis.bit_price > 0:
        # The search weights squared errors by 1/U². The mean weight turns a price in squared steps into one in its
        # errors.
        bit = quant.trellis.bit_price * float((1 / root.diagonal().square())[inputs.hessian.diagonal() > 0].mean())
        prices = learned_prices(codes, path_offsets(codes.cpu(), STATES).to(codes.device), bit)
        codes = trellis_codes(w, root, STATES, prices)
    columns = None if columns is None else columns.cpu()
    data, scale = codes[:, inputs.order.argsort()].cpu(), plain.scale.half().cpu()
    return CodedTensor(data, scale, plain.dtype, plain.rotated, columns, STATES)


def _columns(plain: CodedTensor, how: TensorQuant, inputs: Inputs) -> Tensor:
    """Return the column codes int8 `[c]` of a matrix under the exponent of `how`."""
    assert plain.scale is not None
    codes = column_codes(inputs.roots[0], how.columns, inputs.hessian.diagonal() > 0)[inputs.order.argsort()]
    # A step too small for the column's weights would cut them off at the largest code.
    largest = (plain.data.to(inputs.hessian).abs() / plain.scale.to(inputs.hessian)[:, None]).amax(0)
    return torch.maximum(codes, least_column_codes(largest))


@dataclass(frozen=True)
class Inputs:
    """Statistics of the inputs of a layer, their columns in the order of rounding."""

    hessian: Tensor  # [c, c]
    order: Tensor  # [c]
    roots: Sequence[Tensor]  # one for each damping, see `damped_root`
    thoroughly: int  # number of roots with which every candidate scale is tried

    def in_steps(self, factors: Tensor) -> Inputs:
        """Return what the inputs are to a matrix whose columns are measured in units of `factors` `[c]`."""
        f = factors.to(self.hessian)[self.order]
        scaled = self.hessian * f[:, None] * f
        return dataclasses.replace(self, hessian=scaled, roots=[root / f for root in self.roots])


def inputs_of(hessian: Tensor, gptq: GPTQConfig, order: Tensor | None = None) -> Inputs:
    """Return what rounding needs of a Hessian `[c, c]` that is not zero.

    Without an `order` the columns are rounded in descending order of its diagonal.
    """
    order = hessian.diagonal().argsort(descending=True, stable=True) if order is None else order
    h = hessian[order][:, order]
    alive = h.diagonal() > 0
    damping = list(gptq.damping)
    thoroughly = 1
    if gptq.unused_inputs != "left_out" and not alive.all():
        # The published algorithm counts unused inputs as one in the mean that scales the damping.
        size = float(torch.where(alive, h.diagonal(), 1.0).mean() / h.diagonal()[alive].mean())
        if gptq.unused_inputs == "one":
            damping = [size * d for d in damping]
        else:
            damping.insert(1, size * damping[0])
            thoroughly = 2
    return Inputs(h, order, [damped_root(h, d) for d in damping], thoroughly)


def gptq_codes(w: Tensor, hessian: Tensor, scales: Sequence[Tensor], qmax: int, quant: QuantConfig) -> Rounded:
    """Return codes `[r, c]` and, for every row, one of the candidate `scales` `[r]`, on the device of `hessian`.

    Every scale is tried with the first damping, the best scale with the other dampings. Each row keeps the result of
    least error under `hessian` with the first damping, or all rows that of the least squared error
    (`quant.chosen_by`). Columns whose input was always zero become zero. If all inputs were zero, rows are rounded to
    the nearest code. Raises `GolfError` for a Hessian that is not finite or cannot be decomposed.
    """
    h = checked_hessian(hessian, w.size(1))
    w, scales = w.to(h), [scale.to(h) for scale in scales]
    if not (h.diagonal() > 0).any():
        return nearest_codes(w, scales, qmax, quant)
    return _codes_of(w, scales, qmax, inputs_of(h, quant.gptq), quant)


def _codes_of(w: Tensor, scales: Sequence[Tensor], qmax: int, inputs: Inputs, quant: QuantConfig) -> Rounded:
    h, order = inputs.hessian, inputs.order
    has_rivals = len(scales) * len(inputs.roots) > 1
    # A weight on an input that was always zero changes nothing, and zeros cost the fewest bits.
    w = w[:, order] * (h.diagonal() > 0)
    if quant.chosen_by == "matrix" and not has_rivals:
        codes = _with_feedback(w, inputs.roots[0], scales[0], qmax)
        return codes[:, order.argsort()], scales[0]
    if quant.chosen_by == "row" and has_rivals:
        # Errors under H itself would mostly choose the least damping, which fits the calibration text too closely.
        factor = torch.linalg.solve_triangular(inputs.roots[0], torch.eye(len(h)).to(h), upper=True)
        inputs = dataclasses.replace(inputs, hessian=factor @ factor.T)
    at_once = CPU_ROWS if h.device.type == "cpu" and quant.chosen_by == "row" else max(w.size(0), 1)
    found = [
        _best_codes(w[rows], [scale[rows] for scale in scales], qmax, inputs, quant)
        for rows in torch.arange(w.size(0), device=h.device).split(at_once)
    ]
    codes, scale = torch.cat([codes for codes, _ in found]), torch.cat([scale for _, scale in found])
    return codes[:, order.argsort()], scale


def weighted_errors(w: Tensor, decoded: Tensor, hessian: Tensor) -> Tensor:
    """Return (w - ŵ)ᵀ H (w - ŵ) of every row, `[r]`."""
    change = w - decoded
    return (change @ hessian * change).sum(1)


def _compared_errors(w: Tensor, decoded: Tensor, hessian: Tensor, quant: QuantConfig) -> Tensor:
    """Return the error of every row by which candidates are compared, `[r]`."""
    return weighted_errors(w, decoded, hessian) if quant.chosen_by == "row" else (w - decoded).square().sum(1)


def checked_hessian(hessian: Tensor, columns: int) -> Tensor:
    """Return `hessian` in float64 and exactly symmetric. Raises `GolfError` for a wrong shape or impossible entries."""
    if tuple(hessian.shape) != (columns, columns):
        raise GolfError(f"the Hessian is {tuple(hessian.shape)} where the matrix has {columns} columns")
    h = hessian.double()
    if not h.isfinite().all() or (h.diagonal() < -ROUNDING_ERROR * h.abs().max()).any():
        raise GolfError("the Hessian has entries that are not finite, or a negative diagonal")
    # The sums are symmetric but for rounding, and the decomposition wants them exactly so.
    return (h + h.T) / 2


def damped_root(h: Tensor, damping: float) -> Tensor:
    """Return the upper triangular U with UᵀU = D⁻¹, where D is H plus `damping` times its mean diagonal.

    Inputs that were always zero get the mean alone. The damping grows tenfold until the decomposition exists.
    """
    alive = h.diagonal() > 0
    mean = h.diagonal()[alive].mean()
    eye = torch.eye(h.size(0), dtype=h.dtype, device=h.device)
    most = max(damping, MOST_DAMPING)
    while damping <= most:
        damped = h + mean * torch.where(alive, damping, 1.0).to(h).diag()
        # With J the reversal, J·D·J = L·Lᵀ makes J·L·J the upper R of D = R·Rᵀ, and U is its inverse.
        lower, failed = torch.linalg.cholesky_ex(damped.flip(0, 1))
        if not failed:
            root = torch.linalg.solve_triangular(lower.flip(0, 1), eye, upper=True)
            # A matrix that can just be decomposed may still have an inverse that overflows.
            if root.isfinite().all():
                return root
        # A damping of zero would stay zero.
        damping = max(10 * damping, 1e-4)
    raise GolfError(f"the Hessian has no Cholesky decomposition, even damped by {MOST_DAMPING:g} times its diagonal")


def _best_codes(w: Tensor, scales: Sequence[Tensor], qmax: int, inputs: Inputs, quant: QuantConfig) -> Rounded:
    """Return codes `[r, c]` and scales `[r]` of least error: all scales with the first roots, the best with the others.

    All scales are rounded in one batch.
    """
    h, roots, thoroughly = inputs.hessian, inputs.roots, inputs.thoroughly
    steps, repeated = torch.cat(list(scales)), w.repeat(len(scales), 1)
    best, step, least = w, steps[: len(w)], w.new_full((len(w),), torch.inf)
    for root in roots[:thoroughly]:
        codes = _with_feedback(repeated, root, steps, qmax)
        errors = _compared_errors(repeated, codes * steps[:, None], h, quant).view(len(scales), -1)
        if quant.chosen_by == "matrix":
            errors = errors.sum(1, keepdim=True).expand_as(errors)
        error, scale = errors.min(0)
        chosen = scale * len(w) + torch.arange(len(w), device=w.device)
        # Not `error < least`: a row whose error is NaN still gets codes in place of its weights.
        better = ~(error >= least)
        best, step = torch.where(better[:, None], codes[chosen], best), torch.where(better, steps[chosen], step)
        least = torch.minimum(error, least)
    for root in roots[thoroughly:]:
        codes = _with_feedback(w, root, step, qmax)
        error = _compared_errors(w, codes * step[:, None], h, quant)
        if quant.chosen_by == "matrix":
            error = error.sum().expand_as(error)
        best, least = torch.where((error < least)[:, None], codes, best), torch.minimum(error, least)
    return best, step


def _with_feedback(w: Tensor, root: Tensor, steps: Tensor, qmax: int) -> Tensor:
    """Round `w` `[r, c]` column by column and pass the error of each on to the later columns. Returns the codes.

    `root` is the U of `damped_root`, `steps` `[r]` are the scales. Columns of the same block get the error at once,
    columns behind the block when it is done.
    """
    # Transposed, so that every column is one piece of memory.
    left = w.T.clone(memory_format=torch.contiguous_format)  # [c, r]: weights plus the error passed on to them
    codes = torch.empty_like(left)
    for first in range(0, left.size(0), BLOCK_COLUMNS):
        last = min(first + BLOCK_COLUMNS, left.size(0))
        errors = torch.empty_like(left[first:last])
        for j in range(first, last):
            codes[j] = (left[j] / steps).round_().clamp_(-qmax, qmax)
            errors[j - first] = (left[j] - codes[j] * steps) / root[j, j]
            left[j + 1 : last].addr_(root[j, j + 1 : last], errors[j - first], alpha=-1)
        left[last:].addmm_(root[first:last, last:].T, errors, alpha=-1)
    return codes.T
