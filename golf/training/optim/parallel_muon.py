"""Muon that averages the gradients itself, each matrix on the rank that orthogonalises it (PR #399, #549).

Plain Muon averages every gradient on every rank during the backward pass (DDP) and all-reduces the updates. Here each
rank receives only the gradients of its own matrices (reduce-scatter) and sends their updates (all-gather): a third of
the bytes in bf16, and both overlap with work on other matrices. Momentum is part of the state dict, which upstream's is
not, and float32 unless `optim.muon_momentum_dtype` says bf16 as upstream.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from golf.training.model.layers import embed_dtype
from golf.training.optim.banks import Segment, make_banks
from golf.training.optim.clipping import squared_norm
from golf.training.optim.matrices import RowCounts
from golf.training.optim.muon import Apply, MatrixOptimizer
from golf.training.ranks import Ranks

# Renamed in torch 2.13. NCCL and gloo, the backends that `training.ranks` joins, do both in bf16 and float32 with any
# number of ranks from torch 2.11 on, so there is no other way around for backends that cannot.
reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class Exchange:
    """The matrices of one shape on their way: to their owners as gradients, and to everyone as updates.

    Rank k owns the matrices k·n … k·n + n − 1 of the batch `[W·n, r, c]`, n = ⌈N / W⌉; the last W·n − N are padding
    that stays zero, because the update of a zero gradient is zero.
    """

    def __init__(self, segments: Sequence[Segment], dtype: torch.dtype, world_size: int):
        self.segments, self.world_size = list(segments), world_size
        self.shape = self.segments[0].shape
        first = self.segments[0].values
        self.sizes = [len(s.values) for s in self.segments]
        self.per_rank = -(-sum(self.sizes) // world_size)
        self.batch = torch.zeros(
            (self.per_rank * world_size, *self.shape),
            # Alone, nothing is sent, and so nothing is rounded to the dtype that travels.
            dtype=dtype if world_size > 1 else first.dtype,
            device=first.device,
        )
        self._work: dist.Work | None = None
        self._own: Tensor | None = None  # gradients of this rank's matrices, between reduction and gather
        self._updates = self.batch

    def start_reduction(self) -> None:
        """Send the gradients. This rank receives the mean over ranks of its share."""
        for part, segment in zip(self.batch[: sum(self.sizes)].split(self.sizes), self.segments, strict=True):
            # The copy casts to the dtype that travels, and lays the matrices out in the order of their owners.
            part.copy_(segment.grads)
        if self.world_size == 1:
            self._own = self.batch
            return
        self._own = torch.empty_like(self.batch[: self.per_rank])
        # Nobody waits here: the other shapes are sent and Adam steps while this one travels.
        self._work = reduce_scatter(self._own, self.batch, op=dist.ReduceOp.AVG, async_op=True)

    def own_gradients(self) -> Tensor:
        """Return the averaged gradients `[n, r, c]` of this rank's matrices, float32. They may be changed in place."""
        assert self._own is not None, "gradients are reduced before they are used"
        # After clipping they have arrived already and are scaled: the second call returns them as they are.
        if self._work is not None:
            self._finish()
            # Momentum and norms are computed in float32, whatever the dtype that travelled.
            self._own = self._own.float()
        return self._own

    def start_gather(self, updates: Tensor) -> None:
        """Send the updates `[n, r, c]` of this rank's matrices to everyone."""
        self._own = None
        if self.world_size == 1:
            self._updates = updates
            return
        # The batch may be overwritten, because the gradients in it have arrived.
        self._updates = self.batch
        # The update of a tall matrix is laid out transposed, and collectives want contiguous memory.
        self._work = all_gather(self.batch, updates.contiguous(), async_op=True)

    def finish(self, apply: Apply, lr: float, weight_decay: float) -> None:
        """Apply the gathered updates to every matrix."""
        self._finish()
        parts = self._updates[: sum(self.sizes)].split(self.sizes)
        for part, segment in zip(parts, self.segments, strict=True):
            apply([segment.values], [part], lr, weight_decay)

    def _finish(self) -> None:
        if self._work is not None:
            self._work.wait()
            self._work = None


class ParallelMuon(MatrixOptimizer):
    """Optimizer for 2-D parameters, which it moves into banks. Gradients are this rank's own, not reduced yet."""

    def share_out(self, ranks: Ranks, row_counts: RowCounts | None) -> None:
        self.banks = make_banks(self.params, row_counts)
        by_shape: dict[torch.Size, list[Segment]] = defaultdict(list)
        for segment in (s for bank in self.banks for s in bank.segments()):
            by_shape[segment.shape].append(segment)
        dtype = embed_dtype(self.optim.muon_dtype)
        exchanges = [Exchange(segments, dtype, ranks.world_size) for segments in by_shape.values()]
        # The longest work starts first, and the rest travels while it is computed.
        self.exchanges = sorted(exchanges, key=lambda e: -e.batch.numel())
        self.begin({exchange.shape: exchange.per_rank for exchange in self.exchanges})

    def zero_grad(self) -> None:
        for bank in self.banks:
            bank.zero_grad()

    @torch.no_grad()
    def start_reducing(self, others: Sequence[nn.Parameter]) -> None:
        """Average the gradients of `others` over the ranks in one call, and start averaging the banks."""
        # Gradients that lie outside of the banks have to be in them before anything is sent.
        for bank in self.banks:
            bank.collect()
        grads = [p.grad for p in others if p.grad is not None]
        # Collectives are done in their order: sent first, they let Adam, which steps first, not wait for the banks.
        finish = _start_average(grads) if grads and self.world_size > 1 else None
        for exchange in self.exchanges:
            exchange.start_reduction()
        if finish:
            finish()

    def gradients(self) -> list[Tensor]:
        """Return the averaged gradients of the matrices that this rank owns."""
        return [exchange.own_gradients() for exchange in self.exchanges]

    def squared_norm(self) -> Tensor:
        """Return the sum of squares of all gradients over all ranks, a float64 scalar."""
        squared = squared_norm([matrix for grads in self.gradients() for matrix in grads.unbind()], self.device)
        # Every rank has summed the matrices that it owns, and padding adds zeros.
        if self.world_size > 1:
            dist.all_reduce(squared)
        return squared

    @torch.no_grad()
    def step(self, lr_multiplier: float, momentum: float) -> None:
        """Apply one update at `lr · lr_multiplier`. While one shape's updates travel, the next are computed."""
        lr, travelling = self.lr * lr_multiplier, None
        for exchange in self.exchanges:
            exchange.start_gather(self.update(exchange.own_gradients(), momentum))
            if travelling is not None:
                travelling.finish(self.apply, lr, self.weight_decay)
            travelling = exchange
        if travelling is not None:
            travelling.finish(self.apply, lr, self.weight_decay)


def _start_average(grads: Sequence[Tensor]) -> Callable[[], None]:
    """Send tensors of any dtype as one float32 vector; what is returned replaces them by their means over the ranks."""
    # One vector, because each of many small reductions would cost its own latency. It is float32, because a sum over
    # ranks in bf16 loses digits.
    flat = torch.cat([g.float().flatten() for g in grads])
    work = dist.all_reduce(flat, op=dist.ReduceOp.AVG, async_op=True)

    def finish() -> None:
        work.wait()
        for grad, mean in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
            grad.copy_(mean.view_as(grad))

    return finish
