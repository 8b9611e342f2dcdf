"""Correction of drift: targets of rounding refitted to the inputs that a layer gets from the layers rounded before it.

With x the inputs of the trained model and x̂ those of the rounded one, the layer's output W·x is nearest to
W'·x̂ for W' = W · E[x x̂ᵀ] · E[x̂ x̂ᵀ]⁻¹. Sources: GPTAQ, arXiv 2504.02692; WaterSIC, arXiv 2603.04956.
"""

from __future__ import annotations

import torch
from torch import Tensor

from golf.artifact.quant.formats import Tensors

DRIFT = ".drift"  # suffix of a matrix's name in the Hessians: the correction of that matrix
DAMPING = 0.01  # of the mean diagonal of E[x̂ x̂ᵀ]


def drift_correction(crossed: Tensor, hessian: Tensor) -> Tensor:
    """Return the float32 matrix `[c, c]` by which weights `[r, c]` are multiplied from the right.

    `crossed` is Σ x x̂ᵀ, `hessian` is Σ x̂ x̂ᵀ. Damping draws the product to the weights as they are.
    """
    damping = DAMPING * hessian.double().diagonal().mean() * torch.eye(len(hessian)).to(hessian).double()
    # Inputs that were always zero say nothing.
    if not damping.any():
        return torch.eye(len(hessian)).to(hessian)
    return torch.linalg.solve(hessian.double() + damping, crossed.double() + damping, left=False).float()


def corrected(weights: Tensors, hessians: Tensors) -> dict[str, Tensor]:
    """Return `weights` with those multiplied whose correction is among the `hessians`, in their own dtype."""
    found = dict(weights)
    for name in weights:
        if name + DRIFT in hessians:
            right = hessians[name + DRIFT].double()
            found[name] = (weights[name].detach().to(right.device).double() @ right).to(weights[name].dtype)
    return found
