"""Building blocks of attention, MLP and techniques: parameter-free RMSNorm and the master-weight linear layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def rms_norm(x: Tensor, eps: float | None = None) -> Tensor:
    """Scale the last dimension of `x` to unit RMS; torch's default eps is 1.19e-7, for bf16 inputs too."""
    on_cpu = x.device.type == "cpu" and x.dtype == torch.float32 and x.requires_grad
    if on_cpu and not torch.compiler.is_compiling():  # a compiler fuses torch's own
        return _EagerRMSNorm.apply(x, torch.finfo(x.dtype).eps if eps is None else eps)
    return F.rms_norm(x, (x.size(-1),), eps=eps)


class _EagerRMSNorm(torch.autograd.Function):
    """Half the passes over memory of what autograd makes of `F.rms_norm` in float32 on a CPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        factor = norm.square_().div_(x.size(-1)).add_(eps).rsqrt_()
        ctx.save_for_backward(x, factor)
        return x * factor

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        x, factor = ctx.saved_tensors
        (dy,) = gradients
        product = dy * x
        along = product.sum(-1, keepdim=True).mul_(factor.square()).div_(-x.size(-1))
        return torch.addcmul(dy, x, along, out=product).mul_(factor), None


@dataclass(frozen=True)
class RMSNorm:
    """`rms_norm` with an eps of its own (None: torch's default) and a constant factor on the output."""

    eps: float | None = None
    factor: float = 1.0

    def __call__(self, x: Tensor) -> Tensor:
        y = rms_norm(x, self.eps)
        return y if self.factor == 1.0 else y * self.factor


class CastedLinear(nn.Linear):
    """Bias-free linear layer whose float32 master weight is cast to the activation dtype at every use.

    Matmuls then run in bf16 without an autocast context while the optimizer sees float32.
    `zero_init` marks output projections that start as zeros, so that a block starts as the identity.
    """

    def __init__(self, in_features: int, out_features: int, *, zero_init: bool = False):
        super().__init__(in_features, out_features, bias=False)
        self.zero_init = zero_init
        self.weight_edits: list[Callable[[Tensor, tuple[str, ...]], Tensor]] = []  # techniques: weight, active
        if zero_init:
            nn.init.zeros_(self.weight)

    def forward(self, x: Tensor, active: tuple[str, ...] = ()) -> Tensor:
        """`x` `[..., in]` → `[..., out]`; `active` names the late switches that are on (see golf/techniques)."""
        weight = self.weight
        for edit in self.weight_edits:
            weight = edit(weight, active)
        return F.linear(x, weight.to(x.dtype))


def embed_dtype(compute_dtype: str) -> torch.dtype:
    """Dtype of the embedding and thereby of all activations for a `compute_dtype` of the configuration."""
    return torch.bfloat16 if compute_dtype == "bf16" else torch.float32
