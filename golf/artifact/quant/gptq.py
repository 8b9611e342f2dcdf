"""GPTQ: rounding that changes the layer's output least, not each weight.

For a matrix W `[r, c]` with inputs x the squared change of the output is Σ (w - ŵ)ᵀ H (w - ŵ) over the rows, with
H = Σ x xᵀ `[c, c]`. Columns are rounded one after another, and the later columns compensate for the error of each.
Source: arXiv 2210.17323, in the form of PR #593 and PR #1019. All arithmetic is float64.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from golf.artifact.quant.formats import QMAX, CodedTensor, as_stored, nearest_codes, rotate, row_clips, row_scale
from golf.errors import GolfError
from golf.settings.config import GPTQConfig, QuantConfig, TensorQuant, scale_floor

MOST_DAMPING = 100.0  # largest damping, relative to the mean diagonal; a Hessian that needs more is refused
CPU_ROWS = 1024  # rows rounded together on a CPU, so that they stay in its cache
ROUNDING_ERROR = 1e-6  # negative diagonal entries that rounding explains, relative to the largest entry


def encode_gptq(tensor: Tensor, how: TensorQuant, quant: QuantConfig, hessian: Tensor) -> CodedTensor:
    """Code a matrix `[r, c]` by GPTQ in the format and with the clips of `how`. Scales are rounded to float16 first.

    Raises `GolfError` if the Hessian cannot be used.
    """
    qmax, w, h = QMAX[how.format], tensor.detach().float(), checked_hessian(hessian, tensor.size(1))
    if rotated := how.rotation == "hadamard":
        w, h = rotate(w), rotate(rotate(h).T)  # the inputs rotate with the columns
    scales = [as_stored(row_scale(clip, qmax, scale_floor(how, quant))) for clip in row_clips(w, how, qmax)]
    # Under the floor several clips give one scale: rounding with it once is enough.
    different = list(torch.stack(scales).unique(dim=0))
    codes, scale = gptq_codes(w, h, different, qmax, quant.gptq)
    return CodedTensor(codes.to(torch.int8).cpu(), scale.half().cpu(), tensor.dtype, rotated)


def gptq_codes(
    w: Tensor, hessian: Tensor, scales: Sequence[Tensor], qmax: int, gptq: GPTQConfig
) -> tuple[Tensor, Tensor]:
    """Return codes `[r, c]` and, for every row, one of the candidate `scales` `[r]`, on the device of `hessian`.

    Every scale is tried with the first damping, the best scale with the other dampings. Each row keeps the result of
    least error under `hessian`. Columns whose input was always zero become zero. If all inputs were zero, rows are
    rounded to the nearest code. Raises `GolfError` for a Hessian that is not finite or cannot be decomposed.
    """
    h = checked_hessian(hessian, w.size(1))
    w, scales = w.to(h), [scale.to(h) for scale in scales]
    alive = h.diagonal() > 0
    if not alive.any():
        return nearest_codes(w, scales, qmax)
    order = torch.arange(w.size(1), device=h.device)
    if gptq.act_order:
        order = h.diagonal().argsort(descending=True, stable=True)
    w, h = (w * alive)[:, order], h[order][:, order]
    roots = [damped_root(h, damping) for damping in gptq.damping]
    thoroughly = 1
    # The published algorithm counts unused inputs as one in the mean that scales the damping: try that damping, too.
    if not alive.all():
        size = torch.where(h.diagonal() > 0, h.diagonal(), 1.0).mean() / h.diagonal()[h.diagonal() > 0].mean()
        roots.insert(1, damped_root(h, gptq.damping[0] * float(size)))
        thoroughly = 2
    at_once = CPU_ROWS if h.device.type == "cpu" else max(w.size(0), 1)
    found = [
        _best_codes(
            w[rows], h, roots[:thoroughly], roots[thoroughly:], [scale[rows] for scale in scales], qmax, gptq.block_size
        )
        for rows in torch.arange(w.size(0), device=h.device).split(at_once)
    ]
    codes, scale = torch.cat([codes for codes, _ in found]), torch.cat([scale for _, scale in found])
    return codes[:, order.argsort()], scale


def weighted_errors(w: Tensor, decoded: Tensor, hessian: Tensor) -> Tensor:
    """Return (w - ŵ)ᵀ H (w - ŵ) of every row, `[r]`."""
    change = w - decoded
    return (change @ hessian * change).sum(1)


def checked_hessian(hessian: Tensor, columns: int) -> Tensor:
    """Return `hessian` in float64 and exactly symmetric. Raises `GolfError` for a wrong shape or impossible entries."""
    if tuple(hessian.shape) != (columns, columns):
        raise GolfError(f"the Hessian is {tuple(hessian.shape)} where the matrix has {columns} columns")
    h = hessian.double()
    if not h.isfinite().all() or (h.diagonal() < -ROUNDING_ERROR * h.abs().max()).any():
        raise GolfError("the Hessian has entries that are not finite, or a negative diagonal")
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
            if root.isfinite().all():
                return root
        damping = max(10 * damping, 1e-4)
    raise GolfError(f"the Hessian has no Cholesky decomposition, even damped by {MOST_DAMPING:g} times its diagonal")


def _best_codes(
    w: Tensor,
    h: Tensor,
    roots: Sequence[Tensor],
    more_roots: Sequence[Tensor],
    scales: Sequence[Tensor],
    qmax: int,
    block_size: int,
) -> tuple[Tensor, Tensor]:
    """Return codes `[r, c]` and scales `[r]` of least error: all scales with `roots`, the best one with `more_roots`.

    All scales are rounded in one batch.
    """
    steps, repeated = torch.cat(list(scales)), w.repeat(len(scales), 1)
    best, step, least = w, steps[: len(w)], w.new_full((len(w),), torch.inf)
    for root in roots:
        codes = _with_feedback(repeated, root, steps, qmax, block_size)
        error, scale = weighted_errors(repeated, codes * steps[:, None], h).view(len(scales), -1).min(0)
        chosen = scale * len(w) + torch.arange(len(w), device=w.device)
        better = ~(error >= least)
        best, step = torch.where(better[:, None], codes[chosen], best), torch.where(better, steps[chosen], step)
        least = torch.minimum(error, least)
    for root in more_roots:
        codes = _with_feedback(w, root, step, qmax, block_size)
        error = weighted_errors(w, codes * step[:, None], h)
        best, least = torch.where((error < least)[:, None], codes, best), torch.minimum(error, least)
    return best, step


def _with_feedback(w: Tensor, root: Tensor, steps: Tensor, qmax: int, block_size: int) -> Tensor:
    """Round `w` `[r, c]` column by column and pass the error of each on to the later columns. Returns the codes.

    `root` is the U of `damped_root`, `steps` `[r]` are the scales. Columns of the same block get the error at once,
    columns behind the block when it is done.
    """
    left = w.T.clone(memory_format=torch.contiguous_format)  # [c, r]: weights plus the error passed on to them
    codes = torch.empty_like(left)
    for first in range(0, left.size(0), block_size):
        last = min(first + block_size, left.size(0))
        errors = torch.empty_like(left[first:last])
        for j in range(first, last):
            codes[j] = (left[j] / steps).round_().clamp_(-qmax, qmax)
            errors[j - first] = (left[j] - codes[j] * steps) / root[j, j]
            left[j + 1 : last].addr_(root[j, j + 1 : last], errors[j - first], alpha=-1)
        left[last:].addmm_(root[first:last, last:].T, errors, alpha=-1)
    return codes.T
