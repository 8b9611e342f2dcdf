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

from golf.training.optim.clipping import squared_norm
from golf.training.optim.matrices import RowCounts, matrices_of
from golf.training.ranks import ALONE, Ranks

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


def momentum_update(grads: Tensor, buffer: Tensor, momentum: float, backend_steps: int, dtype: torch.dtype) -> Tensor:
    """Return the orthogonalised, scaled Nesterov momentum `[N, r, c]` in `dtype`. Overwrites `grads` and `buffer`."""
    buffer.mul_(momentum).add_(grads)
    nesterov = grads.add_(buffer, alpha=momentum)
    scale = max(1.0, grads.size(1) / grads.size(2)) ** 0.5
    return orthogonalize(nesterov, backend_steps, dtype) * scale


def decay_and_add(value: Tensor, update: Tensor, lr: float, weight_decay: float) -> None:
    """Set W ← W·(1 − lr·weight_decay) − lr·update in place. The decay, too, uses the scheduled `lr`."""
    if weight_decay:
        value.mul_(1.0 - lr * weight_decay)
    value.add_(update, alpha=-lr)


class Muon:
    """Optimizer for 2-D parameters. Matrix i belongs to rank i mod W, which alone keeps its momentum.

    Owned matrices of one shape are orthogonalised as one batch; the ranks then exchange their updates through one
    flat buffer, so that every rank applies the same ones. Gradients have to be reduced over ranks already.
    """

    reduces_gradients = False

    def __init__(
        self,
        params: Sequence[nn.Parameter],
        *,
        lr: float,
        backend_steps: int = 5,
        weight_decay: float = 0.0,
        dtype: torch.dtype = torch.bfloat16,
        ranks: Ranks = ALONE,
        row_counts: RowCounts | None = None,
    ):
        self.params = list(params)
        self.lr, self.backend_steps, self.weight_decay, self.dtype = lr, backend_steps, weight_decay, dtype
        self.world_size = ranks.world_size
        self.matrices = matrices_of(self.params, row_counts or {})
        self.owned: dict[torch.Size, list[int]] = defaultdict(list)
        for i, matrix in enumerate(self.matrices):
            if i % ranks.world_size == ranks.rank:
                self.owned[matrix.shape].append(i)
        self.momentum_buffers: dict[torch.Size, Tensor] = {}  # [N, r, c] per shape

    def zero_grad(self) -> None:
        for param in self.params:
            param.grad = None

    def reduce_gradients(self, others: Sequence[nn.Parameter]) -> None:
        """Do nothing: the backward pass has averaged the gradients over the ranks."""

    def gradients(self) -> list[Tensor]:
        return [p.grad for p in self.params if p.grad is not None]

    def squared_norm(self) -> Tensor:
        """Return the sum of squares of all gradients over all ranks, a float64 scalar."""
        return squared_norm(self.gradients(), self.params[0].device)

    @torch.no_grad()
    def step(self, lr_multiplier: float, momentum: float) -> None:
        """Apply one update at `lr · lr_multiplier`."""
        updates = self._exchange(self._owned_updates(momentum))
        for matrix, update in zip(self.matrices, updates, strict=True):
            decay_and_add(matrix.value, update, self.lr * lr_multiplier, self.weight_decay)

    def _owned_updates(self, momentum: float) -> dict[int, Tensor]:
        updates: dict[int, Tensor] = {}
        for shape, indices in self.owned.items():
            grads = torch.stack([self.matrices[i].grad for i in indices])
            buffer = self.momentum_buffers.setdefault(shape, torch.zeros_like(grads))
            batch = momentum_update(grads, buffer, momentum, self.backend_steps, self.dtype)
            updates.update(zip(indices, batch.unbind(), strict=True))
        return updates

    def _exchange(self, updates: dict[int, Tensor]) -> list[Tensor]:
        if self.world_size == 1:
            return [updates[i] for i in range(len(self.matrices))]
        sizes = [m.shape.numel() for m in self.matrices]
        flat = torch.zeros(sum(sizes), dtype=self.dtype, device=self.params[0].device)
        views = [v.view(m.shape) for v, m in zip(flat.split(sizes), self.matrices, strict=True)]
        for i, update in updates.items():
            views[i].copy_(update)
        dist.all_reduce(flat)
        return views

    def state_dict(self) -> dict[str, Tensor]:
        """Return the momentum of the matrices that this rank owns. It differs between ranks."""
        return momentum_to_state(self.momentum_buffers)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.momentum_buffers = momentum_from_state(state)


def momentum_to_state(buffers: dict[torch.Size, Tensor]) -> dict[str, Tensor]:
    """Return the momentum `[N, r, c]` by shape, under names like `512x256`."""
    return {"x".join(map(str, shape)): buffer for shape, buffer in buffers.items()}


def momentum_from_state(state: dict[str, Tensor]) -> dict[torch.Size, Tensor]:
    """Invert `momentum_to_state`, with tensors of its own."""
    return {torch.Size(map(int, key.split("x"))): buffer.clone() for key, buffer in state.items()}
