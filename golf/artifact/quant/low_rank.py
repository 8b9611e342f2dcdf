"""Low-rank repair of rounded matrices: W ≈ Ŵ + AᵀB with A `[rank, r]` and B `[rank, c]`, themselves quantized.

Sources: LQER, arXiv 2402.02446, in record 2026-04-27_SP8192_LQER; the best factors under the inputs' Hessian, QERA,
arXiv 2410.06040.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from golf.artifact.quant.formats import CodedTensor, CodedTensors, Tensors, as_stored, decode, encode_integer
from golf.artifact.quant.gptq import checked_hessian, damped_root
from golf.settings.config import QuantConfig

A, B = ".lqer_a", ".lqer_b"  # suffixes of the matrix's name


def repair(
    coded: CodedTensors, weights: Tensors, names: list[str], quant: QuantConfig, hessians: Tensors
) -> dict[str, CodedTensor]:
    """Return `coded` with factors added for those matrices of `names` that gain most, as `quant.lqer` says."""
    found = {}
    for name in names:
        a, b, gain = _factors(weights[name], decode(coded[name]), quant, hessians.get(name))
        found[name] = gain, a, b
    most = sorted(found, key=lambda name: found[name][0], reverse=True)[: quant.lqer.top]
    repaired: dict[str, CodedTensor] = {}
    for name, tensor in coded.items():
        repaired[name] = tensor
        if name in most:
            repaired[name + A], repaired[name + B] = found[name][1:]
    return repaired


def folded(weights: Tensors) -> dict[str, Tensor]:
    """Add every pair of decoded factors to its matrix. Returns the tensors under the names of the model."""
    whole = {name: tensor for name, tensor in weights.items() if not name.endswith((A, B))}
    for name in whole:
        if name + A in weights:
            a, b = weights[name + A].float(), weights[name + B].float()
            # A row of an asymmetric B is a group.
            whole[name] = (whole[name].float() + (a.T @ b.view(len(a), -1))).to(whole[name].dtype)
    return whole


def _factors(
    w: Tensor, decoded: Tensor, quant: QuantConfig, hessian: Tensor | None
) -> tuple[CodedTensor, CodedTensor, float]:
    """Return coded factors A and B of one matrix, and the gain by which matrices are chosen.

    The gain is by how much exact factors lower the squared error: with a Hessian that of the layer's output. Under
    `quant.lqer.error=weights` it is the whole squared error, as in the record.
    """
    residual = w.detach().to(decoded.device).double() - decoded.double()  # [r, c]
    plain = hessian is None or quant.lqer.error == "weights"
    residual = residual if hessian is None else residual.to(hessian.device)
    if plain:
        u, s, v = torch.linalg.svd(residual, full_matrices=False)
    else:
        assert hessian is not None
        # With H = R·Rᵀ the layer's error of E is the plain error of E·R.
        inverse = damped_root(checked_hessian(hessian, w.size(1)), quant.gptq.damping[0])
        root = torch.linalg.solve_triangular(inverse, torch.eye(len(inverse)).to(inverse), upper=True)
        u, s, v = torch.linalg.svd(residual @ root, full_matrices=False)
        # The factors are those of E·R, so R is taken out again.
        v = v @ inverse
    rank = quant.lqer.rank
    how = dataclasses.replace(quant.other, format=quant.lqer.format, clip="quantile", clip_quantile=1, rotation="none")
    # The floor of 1/qmax is meant for weights; factors may be far smaller.
    own_range = dataclasses.replace(quant, scale_floor="eps", scale_rounding="after")
    factors = [factor.float().cpu().contiguous() for factor in ((u[:, :rank] * s[:rank]).T, v[:rank])]
    gain = float((s if quant.lqer.error == "weights" else s[:rank]).square().sum())
    if quant.lqer.factors == "asymmetric" and factors[1].numel() % quant.lqer.group == 0:
        return *asymmetric(factors[0], factors[1], quant.lqer.group), gain
    a, b = (encode_integer(factor, how, own_range) for factor in factors)
    return a, b, gain


def asymmetric(a: Tensor, b: Tensor, group: int) -> tuple[CodedTensor, CodedTensor]:
    """Return A `[rank, r]` in codes of -2 to 1 with one scale, and B `[rank, c]` in codes of -8 to 7.

    Rows of the coded B are groups of `group` values with a scale each. The largest magnitude lies between two codes.
    """
    groups = b.reshape(-1, group)
    one, of_groups = as_stored(a.abs().amax() / 1.5), as_stored(groups.abs().amax(1) / 7.5)
    codes_a, codes_b = (a / one).round().clamp(-2, 1), (groups / of_groups[:, None]).round().clamp(-8, 7)
    return (
        CodedTensor(codes_a.to(torch.int8), one, a.dtype),
        CodedTensor(codes_b.to(torch.int8), of_groups.half(), b.dtype),
    )
