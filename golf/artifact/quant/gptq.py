"""GPTQ: codes of a matrix chosen so that the layer's output changes least, not each weight.

For a matrix W `[r, c]` with inputs x the squared change of the output is Σ (w - ŵ)ᵀ H (w - ŵ) over the rows, with
H = Σ x xᵀ `[c, c]`. Columns are rounded one after another, and what rounding one does to the output is taken back by
the columns that still come. Source: arXiv 2210.17323, in the form of PR #593 and PR #1019. Everything is in float64.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from golf.artifact.quant.formats import QMAX, CodedTensor, as_stored, nearest_codes, rotate, row_clips, row_scale
from golf.errors import GolfError
from golf.settings.config import GPTQConfig, QuantConfig, TensorQuant, scale_floor

MOST_DAMPING = 100.0  # of the diagonal's mean; a Hessian that needs more is none
CPU_ROWS = 1024  # at once: what stays in the cache
ROUNDING_ERROR = 1e-6  # of the largest entry: what may be below zero


def encode_gptq(tensor: Tensor, how: TensorQuant, quant: QuantConfig, hessian: Tensor) -> CodedTensor:
    """A matrix in the integer format and with the clips that `how` says, by `gptq_codes` with scales as stored.

    Raises `GolfError` if the Hessian cannot be used.
    """
    qmax, w, h = QMAX[how.format], tensor.detach().float(), checked_hessian(hessian, tensor.size(1))
    if rotated := how.rotation == "hadamard":
        w, h = rotate(w), rotate(rotate(h).T)  # inputs are rotated as the columns are
    scales = [as_stored(row_scale(clip, qmax, scale_floor(how, quant))) for clip in row_clips(w, how, qmax)]
    different = list(torch.stack(scales).unique(dim=0))  # under the floor all are the same
    codes, scale = gptq_codes(w, h, different, qmax, quant.gptq)
    return CodedTensor(codes.to(torch.int8).cpu(), scale.half().cpu(), tensor.dtype, rotated)


def gptq_codes(
    w: Tensor, hessian: Tensor, scales: Sequence[Tensor], qmax: int, gptq: GPTQConfig
) -> tuple[Tensor, Tensor]:
    """Codes `[r, c]` and for every row one of the candidate `scales` `[r]`, on the device of `hessian`.

    All scales are run through with the first damping and the best of them with the others; each row keeps what has the
    least error under `hessian`. Columns whose input was always zero become zero; if all were, rows are rounded to the
    nearest code. Raises `GolfError` for a Hessian that is not finite or cannot be decomposed.
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
    if not alive.all():  # the published algorithm takes unused inputs to be of size one when it sets the damping
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
    """(w - ŵ)ᵀ H (w - ŵ) of every row, `[r]`."""
    change = w - decoded
    return (change @ hessian * change).sum(1)


def checked_hessian(hessian: Tensor, columns: int) -> Tensor:
    """`hessian` in float64 and exactly symmetric; raises `GolfError` if it is none."""
    if tuple(hessian.shape) != (columns, columns):
        raise GolfError(f"the Hessian is {tuple(hessian.shape)} where the matrix has {columns} columns")
    h = hessian.double()
    if not h.isfinite().all() or (h.diagonal() < -ROUNDING_ERROR * h.abs().max()).any():
        raise GolfError("the Hessian has entries that are not finite, or a negative diagonal")
    return (h + h.T) / 2


def damped_root(h: Tensor, damping: float) -> Tensor:
    """The upper triangular U with UᵀU = D⁻¹, where D is H plus `damping` times the mean of its diagonal.

    Inputs that were always zero get the mean alone. Damping grows tenfold until there is a decomposition.
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
    """Codes and scales of the least error of each row of `w`, from every scale with `roots`, its best with the others.

    The scales are rounded with side by side.
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
    """Codes of `w` `[r, c]`, left to right: the columns that still come make up for the error of each.

    `root` is the U of `damped_root`, `steps` `[r]` the scales. Within a block the others are told at once, the columns
    behind it when it is done.
    """
    left = w.T.clone(memory_format=torch.contiguous_format)  # [c, r]: what the columns still have to stand for
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
