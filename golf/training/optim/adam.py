"""AdamW over torch's fused kernel. Without weight decay it is Adam.

torch's own class is not used because constructing it imports the compiler stack, 1.7 s on two cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from golf.training.optim.named_state import NamedState


class Adam(NamedState):
    """One parameter group with its own base learning rate and decoupled weight decay."""

    moment_dtype: torch.dtype | None = None  # None: that of the parameters

    def __init__(
        self,
        params: Sequence[nn.Parameter],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ):
        self.params = list(params)
        self.lr, self.betas, self.eps, self.weight_decay = lr, betas, eps, weight_decay
        self.state: dict[str, list[Tensor]] = {
            "exp_avg": [torch.zeros_like(p, dtype=self.moment_dtype) for p in self.params],
            "exp_avg_sq": [torch.zeros_like(p, dtype=self.moment_dtype) for p in self.params],
            # The fused kernel counts steps itself, in tensors on the parameters' device.
            "steps": [torch.zeros((), device=p.device) for p in self.params],
        }

    @torch.no_grad()
    def step(self, lr_multiplier: float) -> None:
        """Apply one update at `lr · lr_multiplier`. Parameters without a gradient stay as they are."""
        # Rows that only a late route uses have no gradient yet. A step would decay them and count as one of theirs.
        live = [i for i, p in enumerate(self.params) if p.grad is not None]
        exp_avg, exp_avg_sq, steps = ([self.state[key][i] for i in live] for key in ("exp_avg", "exp_avg_sq", "steps"))
        params: list[Tensor] = [self.params[i] for i in live]
        grads = [g for i in live if (g := self.params[i].grad) is not None]
        self._update([params, grads, exp_avg, exp_avg_sq], steps, lr_multiplier)

    def _update(self, tensors: list[list[Tensor]], steps: list[Tensor], lr_multiplier: float) -> None:
        """Update `tensors`, lists of parameters, gradients, first and second moments, in place."""
        params, grads, *moments = tensors
        how: dict[str, Any] = {"beta1": self.betas[0], "beta2": self.betas[1], "eps": self.eps, "fused": True}
        how |= {"lr": self.lr * lr_multiplier, "weight_decay": self.weight_decay, "maximize": False, "amsgrad": False}
        # The empty list stands for the maxima of second moments, which AMSGrad alone keeps.
        adamw(params, grads, moments[0], moments[1], [], steps, **how)


class AdamWithMoments(Adam):
    """Adam whose moments have one dtype between steps, whatever the parameters' is. Updates are computed in float32.

    In bf16 the second moment stands still while a gradient's square is within a fraction 2⁻⁹ / (1 - beta2) of it, which
    is 0.2 at beta2 = 0.99. An embedding in bf16 has such moments by default, as in the public scripts.
    """

    def __init__(self, params: Sequence[nn.Parameter], moment_dtype: torch.dtype, **settings: Any):
        # First, because the moments are made with the rest.
        self.moment_dtype = moment_dtype
        super().__init__(params, **settings)

    def _update(self, tensors: list[list[Tensor]], steps: list[Tensor], lr_multiplier: float) -> None:
        # torch's fused kernel wants one dtype for all four.
        wide = [[t.float() for t in of_one_kind] for of_one_kind in tensors]
        super()._update(wide, steps, lr_multiplier)
        for stored, updated in zip(tensors, wide, strict=True):
            # `_foreach_copy_` refuses empty lists, which a step without any gradient has.
            if stored:
                torch._foreach_copy_(stored, updated)
