"""Layers: parameter-free RMSNorm, the master-weight linear layer, the MLP, and the context that all layers share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from golf.training.model.eager_cpu import eager_relu_squared, eager_rms_norm, suits_eager_cpu
from golf.training.model.route import Visit

Hook = TypeVar("Hook")


def rms_norm(x: Tensor, eps: float | None = None) -> Tensor:
    """Scale the last dimension of `x` to unit RMS. torch's default eps is 1.19e-7, for bf16 inputs too."""
    return eager_rms_norm(x, eps) if suits_eager_cpu(x) else F.rms_norm(x, (x.size(-1),), eps=eps)


@dataclass(frozen=True)
class RMSNorm:
    """`rms_norm` with an eps of its own (None: torch's default) and a constant factor on the output."""

    eps: float | None = None
    factor: float = 1.0

    def __call__(self, x: Tensor) -> Tensor:
        y = rms_norm(x, self.eps)
        # A factor of 1 would be one more operation in every norm of the graph.
        if self.factor != 1.0:
            y = y * self.factor
        return y


class CastedLinear(nn.Linear):
    """Bias-free linear layer whose float32 master weight is cast to the activation dtype at every use.

    Matmuls then run in bf16 without an autocast context while the optimizer sees float32.
    `zero_init` marks output projections that start as zeros, so that a block starts as the identity.
    """

    def __init__(self, in_features: int, out_features: int, *, zero_init: bool = False):
        super().__init__(in_features, out_features, bias=False)
        self.zero_init = zero_init
        # Techniques append functions (weight, active) → weight.
        self.weight_edits: list[Callable[[Tensor, tuple[str, ...]], Tensor]] = []
        if zero_init:
            nn.init.zeros_(self.weight)

    def forward(self, x: Tensor, active: tuple[str, ...] = ()) -> Tensor:
        """Map `x` `[..., in]` to `[..., out]`. `active` names the late switches that are on."""
        # Edits see the float32 weight, as the export does, and the cast comes after them.
        return F.linear(x, self.edited_weight(active).to(x.dtype))

    def edited_weight(self, active: tuple[str, ...]) -> Tensor:
        """Return the weight `[out, in]` after the edits of techniques."""
        weight: Tensor = self.weight
        for edit in self.weight_edits:
            weight = edit(weight, active)
        return weight


def embed_dtype(compute_dtype: str) -> torch.dtype:
    """Return the dtype of the embedding, and thereby of all activations, for `model.compute_dtype`."""
    return torch.bfloat16 if compute_dtype == "bf16" else torch.float32


def relu_squared(x: Tensor) -> Tensor:
    """Return relu(x)² (Primer, arXiv 2109.08668)."""
    return eager_relu_squared(x) if suits_eager_cpu(x) else x.relu().square()


def expand_and_contract(mlp: MLP, x: Tensor, active: tuple[str, ...]) -> Tensor:
    """Return W₂ · activation(W₁x) `[..., d]` by torch's operations."""
    return mlp.proj(mlp.activation(mlp.fc(x, active)), active)


class MLP(nn.Module):
    """The feed-forward half of a block: W₂ · activation(W₁x). `hidden` is the absolute width, W₂ starts at zero.

    Slots: `activation`, and `compute` (mlp, x, active → y), which a kernel for both products replaces in training.
    """

    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.fc = CastedLinear(dim, hidden)
        self.proj = CastedLinear(hidden, dim, zero_init=True)
        self.activation: Callable[[Tensor], Tensor] = relu_squared
        self.compute: Callable[[MLP, Tensor, tuple[str, ...]], Tensor] = expand_and_contract

    def forward(self, x: Tensor, active: tuple[str, ...] = ()) -> Tensor:
        return self.compute(self, x, active)


def in_order(hooks: Mapping[str, Sequence[Hook]]) -> list[Hook]:
    """Return the hooks of every phase, the phases in the order in which they are declared."""
    return [hook for phase in hooks.values() for hook in phase]


class Context(NamedTuple):
    """Values of one forward pass that every layer reads."""

    ids: Tensor  # [B, T] int64
    x0: Tensor  # [B, T, d], the residual stream before the first layer
    cos: Tensor  # [1, T, 1, R/2]
    sin: Tensor
    shared: dict[str, Tensor]  # tensors that techniques pass between layers
    active: tuple[str, ...]  # late switches that are on
    visit: Visit = Visit(0)  # the use of a block that this is
    layer: Any = None  # block whose matrices are used, if another one has the control vectors
