"""AdamW over torch's fused kernel. Without weight decay it is Adam.

torch's own class is not used because constructing it imports the compiler stack, 1.7 s on two cores.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw


class Adam:
    """One parameter group with its own base learning rate and decoupled weight decay."""

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
        self.state: dict[str, list[Tensor]] = {}

    @torch.no_grad()
    def step(self, lr_multiplier: float) -> None:
        """Apply one update at `lr · lr_multiplier`. Parameters without a gradient stay as they are."""
        if not self.state:
            self.state = {
                "exp_avg": [torch.zeros_like(p) for p in self.params],
                "exp_avg_sq": [torch.zeros_like(p) for p in self.params],
                "steps": [torch.zeros((), device=p.device) for p in self.params],
            }
        live = [i for i, p in enumerate(self.params) if p.grad is not None]
        exp_avg, exp_avg_sq, steps = ([tensors[i] for i in live] for tensors in self.state.values())
        adamw(
            [self.params[i] for i in live],
            [g for i in live if (g := self.params[i].grad) is not None],
            exp_avg,
            exp_avg_sq,
            [],
            steps,
            fused=True,
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=self.lr * lr_multiplier,
            weight_decay=self.weight_decay,
            eps=self.eps,
            maximize=False,
        )

    def state_dict(self) -> dict[str, list[Tensor]]:
        return self.state

    def load_state_dict(self, state: dict[str, list[Tensor]]) -> None:
        self.state = {key: [t.clone() for t in tensors] for key, tensors in state.items()}
