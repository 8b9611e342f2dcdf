"""Muon: momentum whose update is orthogonalised by a Newton-Schulz iteration, with the work shared by the ranks.

Source: Keller Jordan, "Muon: An optimizer for hidden layers in neural networks", 2024, in the variant of the public
baseline: Nesterov momentum, five iterations, update scaled by √max(1, rows/columns), decoupled weight decay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

NEWTON_SCHULZ_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_EPS = 1e-7


def orthogonalize(updates: Tensor, steps: int = 5, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Push the singular values of every matrix in `updates` `[N, r, c]` to about 1 (they end in 0.68 … 1.13).

    Each step applies s → a·s + b·s³ + c·s⁵ to the singular values. Returns `[N, r, c]` in `dtype`. In bf16 the
    rounding of every term moves an update by 3 %; the terms are formed in the public baseline's order to move alike.
    """
    a, b, c = NEWTON_SCHULZ_COEFFICIENTS
    x = updates.to(dtype)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + NEWTON_SCHULZ_EPS)
    if tall := x.size(1) > x.size(2):
        x = x.mT
    for _ in range(steps):
        gram = x @ x.mT
        poly = b * gram + (c * gram) @ gram
        x = a * x + poly @ x
    return x.mT if tall else x


class Muon:
    """Optimizer for 2-D parameters. Matrix i belongs to rank i mod W, which alone keeps its momentum.

    Owned matrices of one shape are orthogonalised as one batch; the ranks then exchange their updates through one
    flat buffer, so that every rank applies the same ones. Gradients have to be reduced over ranks already.
    """

    def __init__(
        self,
        params: Sequence[nn.Parameter],
        *,
        lr: float,
        backend_steps: int = 5,
        weight_decay: float = 0.0,
        dtype: torch.dtype = torch.bfloat16,
        rank: int = 0,
        world_size: int = 1,
    ):
        self.params = list(params)
        self.lr, self.backend_steps, self.weight_decay, self.dtype = lr, backend_steps, weight_decay, dtype
        self.world_size = world_size
        self.owned: dict[torch.Size, list[int]] = defaultdict(list)
        for i, p in enumerate(self.params):
            if i % world_size == rank:
                self.owned[p.shape].append(i)
        self.momentum_buffers: dict[torch.Size, Tensor] = {}  # [N, r, c] per shape

    @torch.no_grad()
    def step(self, lr_multiplier: float, momentum: float) -> None:
        """Apply one update at `lr · lr_multiplier`."""
        lr = self.lr * lr_multiplier
        for p, update in zip(self.params, self._exchange(self._owned_updates(momentum)), strict=True):
            if self.weight_decay:
                p.mul_(1.0 - lr * self.weight_decay)
            p.add_(update, alpha=-lr)

    def _owned_updates(self, momentum: float) -> dict[int, Tensor]:
        updates: dict[int, Tensor] = {}
        for shape, indices in self.owned.items():
            grads = torch.stack([_grad(self.params[i]) for i in indices])
            buffer = self.momentum_buffers.setdefault(shape, torch.zeros_like(grads))
            buffer.mul_(momentum).add_(grads)
            nesterov = grads.add_(buffer, alpha=momentum)
            scale = max(1.0, shape[0] / shape[1]) ** 0.5
            batch = orthogonalize(nesterov, self.backend_steps, self.dtype) * scale
            updates.update(zip(indices, batch.unbind(), strict=True))
        return updates

    def _exchange(self, updates: dict[int, Tensor]) -> list[Tensor]:
        if self.world_size == 1:
            return [updates[i] for i in range(len(self.params))]
        sizes = [p.numel() for p in self.params]
        flat = torch.zeros(sum(sizes), dtype=self.dtype, device=self.params[0].device)
        views = [v.view_as(p) for v, p in zip(flat.split(sizes), self.params, strict=True)]
        for i, update in updates.items():
            views[i].copy_(update)
        dist.all_reduce(flat)
        return views

    def state_dict(self) -> dict[str, Tensor]:
        """Momentum of the matrices this rank owns; differs between ranks."""
        return {"x".join(map(str, shape)): buffer for shape, buffer in self.momentum_buffers.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.momentum_buffers = {torch.Size(map(int, key.split("x"))): buffer.clone() for key, buffer in state.items()}


def _grad(p: nn.Parameter) -> Tensor:
    return torch.zeros_like(p) if p.grad is None else p.grad
