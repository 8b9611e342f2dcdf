"""RMS norm with a backward pass of its own, in half the passes over memory that autograd needs for torch's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        # It reads `x` once. A square and its mean would write and read a tensor as large as `x`.
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        factor = norm.square_().div_(x.size(-1)).add_(eps).rsqrt_()
        ctx.save_for_backward(x, factor)
        return x * factor

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        x, factor = ctx.saved_tensors
        (dy,) = gradients
        product = dy * x
        # dx = f·(dy - x·f²·mean(dy·x)), with f the factor of the forward pass.
        along = product.sum(-1, keepdim=True).mul_(factor.square()).div_(-x.size(-1))
        return torch.addcmul(dy, x, along, out=product).mul_(factor), None


def eager_rms_norm(x: Tensor, eps: float) -> Tensor:
    """Scale the last dimension of float32 `x` to unit RMS."""
    return _RMSNorm.apply(x, eps)
