"""Muon: momentum whose update is orthogonalised by a Newton-Schulz iteration, with the work shared by the ranks.

Source: Keller Jordan, "Muon: An optimizer for hidden layers in neural networks", 2024, in the variant of the public
baseline: Nesterov momentum, five iterations, update scaled by √max(1, rows/columns), decoupled weight decay.
`OptimConfig` has the options: rows of unit norm (MuonEq-R, arXiv 2603.28254; record 2026-04-03_MuonEqR), and the
coefficients of Polar Express (arXiv 2505.16932; record 2026-04-23_SP8192_CaseOps_SparseGate).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from golf.settings.config import OptimConfig
from golf.training.model.layers import embed_dtype
from golf.training.optim.clipping import squared_norm
from golf.training.optim.matrices import RowCounts, matrices_of
from golf.training.optim.named_state import NamedState
from golf.training.ranks import ALONE, Ranks

QUINTIC = (3.4445, -4.7750, 2.0315)  # the (a, b, c) of every iteration
# The (a, b, c) of each iteration. The last ones polish what the first have brought near 1.
POLAR_EXPRESS = (
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
)
# (values, updates, lr, weight decay): changes the values of matrices `[r, c]` or `[n, r, c]` in place
Apply = Callable[[list[Tensor], list[Tensor], float, float], None]
EPS = 1e-7  # added to the norm of a matrix, and least norm of a row


def coefficients(optim: OptimConfig) -> Sequence[tuple[float, float, float]]:
    """Return the (a, b, c) of every Newton-Schulz iteration."""
    if optim.muon_coefficients == "polar_express":
        return POLAR_EXPRESS[: optim.muon_backend_steps]
    return (QUINTIC,) * optim.muon_backend_steps


def orthogonalize(updates: Tensor, optim: OptimConfig) -> Tensor:
    """Push the singular values of every matrix in `updates` `[N, r, c]` to about 1.

    Each iteration applies s → a·s + b·s³ + c·s⁵ to the singular values. Those above 0.002 end in 0.68 … 1.20 with the
    quintic coefficients and in 0.86 … 1.14 with those of Polar Express. Returns `[N, r, c]` in `optim.muon_dtype`. In
    bf16 the rounding of every term moves an update by 3 %; the terms are formed in the public baseline's order.
    """
    x = updates.to(embed_dtype(optim.muon_dtype))
    # The iteration needs singular values of at most 1 to begin with, and the Frobenius norm bounds the largest one.
    x = x / (x.norm(dim=(1, 2), keepdim=True) + EPS)
    # The Gram matrix of the shorter side has the same singular values and costs fewer operations.
    if tall := x.size(1) > x.size(2):
        x = x.mT
    for a, b, c in coefficients(optim):
        gram = x @ x.mT
        x = a * x + (b * gram + (c * gram) @ gram) @ x
    return x.mT if tall else x


def momentum_update(grads: Tensor, buffer: Tensor, momentum: float, optim: OptimConfig) -> Tensor:
    """Return the orthogonalised, scaled Nesterov momentum `[N, r, c]`. Overwrites `grads` and `buffer`."""
    return orthogonalize(nesterov_momentum(grads, buffer, momentum, optim), optim) * tall_factor(grads)


def tall_factor(updates: Tensor) -> float:
    """Return √max(1, r/c) for matrices `[N, r, c]`."""
    # Elements of an orthogonal matrix have RMS 1/√max(r, c). The factor makes that 1/√c for tall ones, too.
    return max(1.0, updates.size(1) / updates.size(2)) ** 0.5


def nesterov_momentum(grads: Tensor, buffer: Tensor, momentum: float, optim: OptimConfig) -> Tensor:
    """Return what is orthogonalised, `[N, r, c]`. Overwrites `grads` and `buffer`."""
    # The new gradient has no factor (1 - momentum): orthogonalising takes the scale out anyway.
    buffer.mul_(momentum).add_(grads)
    nesterov = grads.add_(buffer, alpha=momentum)
    if optim.muon_row_normalize:
        norm = nesterov.norm(dim=2, keepdim=True)
        if optim.muon_row_eps:
            # As a norm by the root of mean square plus eps: rows far below √eps stay nearly as they are.
            norm = (norm.square() + optim.muon_row_eps * nesterov.size(2)).sqrt()
        nesterov.div_(norm.clamp(min=EPS))
    return nesterov


def decay_and_add(values: list[Tensor], updates: list[Tensor], lr: float, weight_decay: float) -> None:
    """Set every W ← W·(1 − lr·weight_decay) − lr·update in place. The decay, too, uses the scheduled `lr`."""
    # Techniques may have taken all matrices over, and torch refuses empty lists.
    if not values:
        return
    # One launch for all matrices on a GPU.
    if weight_decay:
        torch._foreach_mul_(values, 1.0 - lr * weight_decay)
    torch._foreach_add_(values, updates, alpha=-lr)


class MatrixOptimizer(NamedState):
    """Settings of both forms of Muon, and the momentum of the matrices that this rank owns."""

    def __init__(
        self,
        params: Sequence[nn.Parameter],
        optim: OptimConfig,
        *,
        ranks: Ranks = ALONE,
        row_counts: RowCounts | None = None,
    ):
        self.params, self.optim = list(params), optim
        self.world_size, self.device = ranks.world_size, ranks.device
        # The learning rate is that before the schedule's multiplier. The schedule may change the decay between steps.
        self.lr, self.weight_decay = optim.matrix_lr, optim.muon_wd
        self.state: dict[str, Tensor] = {}  # momentum [n, r, c] under names like `512x256`; ranks differ in n
        self.share_out(ranks, row_counts)

    def share_out(self, ranks: Ranks, row_counts: RowCounts | None) -> None:
        """Decide which matrices this rank owns, and begin with a momentum of zero for them."""
        raise NotImplementedError

    def begin(self, counts: Mapping[torch.Size, int]) -> None:
        """Begin with a momentum of zero for `counts` matrices of every shape."""
        for shape, count in counts.items():
            like = self.params[0]
            dtype = torch.bfloat16 if self.optim.muon_momentum_dtype == "bf16" else like.dtype
            self.state[shape_name(shape)] = torch.zeros((count, *shape), dtype=dtype, device=like.device)

    def update(self, grads: Tensor, momentum: float) -> Tensor:
        """Return what `momentum_update` makes of this rank's gradients `[n, r, c]` of one shape."""
        return momentum_update(grads, self.state[shape_name(grads.shape[1:])], momentum, self.optim)

    # How updates reach the weights.
    apply = staticmethod(decay_and_add)


def shape_name(shape: torch.Size) -> str:
    """Return the name of a shape in an optimizer's state, such as `512x256`."""
    return "x".join(map(str, shape))


class Muon(MatrixOptimizer):
    """Optimizer for 2-D parameters. Matrix i belongs to rank i mod W, which alone keeps its momentum.

    Owned matrices of one shape are orthogonalised as one batch; the ranks then exchange their updates through one
    flat buffer, so that every rank applies the same ones. Gradients have to be reduced over ranks already.
    """

    def share_out(self, ranks: Ranks, row_counts: RowCounts | None) -> None:
        self.matrices = matrices_of(self.params, row_counts)
        self.owned: dict[torch.Size, list[int]] = defaultdict(list)
        for i, matrix in enumerate(self.matrices):
            if i % ranks.world_size == ranks.rank:
                self.owned[matrix.shape].append(i)
        self.begin({shape: len(indices) for shape, indices in self.owned.items()})

    def zero_grad(self) -> None:
        for param in self.params:
            param.grad = None

    # A step of `Optimizer` calls the methods that follow in this order.
    def start_reducing(self, others: Sequence[nn.Parameter]) -> None:
        """Do nothing: the backward pass has averaged the gradients over the ranks."""

    def gradients(self) -> list[Tensor]:
        """Return the averaged gradients of this rank, for changes in place."""
        return [p.grad for p in self.params if p.grad is not None]

    def squared_norm(self) -> Tensor:
        """Return the sum of squares of all gradients over all ranks, a float64 scalar."""
        return squared_norm(self.gradients(), self.device)

    @torch.no_grad()
    def step(self, lr_multiplier: float, momentum: float) -> None:
        """Apply one update at `lr · lr_multiplier`."""
        updates = self._exchange(self._owned_updates(momentum))
        self.apply([m.value for m in self.matrices], updates, self.lr * lr_multiplier, self.weight_decay)

    def _owned_updates(self, momentum: float) -> dict[int, Tensor]:
        updates: dict[int, Tensor] = {}
        for indices in self.owned.values():
            batch = self.update(torch.stack([self.matrices[i].grad for i in indices]), momentum)
            updates.update(zip(indices, batch.unbind(), strict=True))
        return updates

    def _exchange(self, updates: dict[int, Tensor]) -> list[Tensor]:
        # Alone, this rank owns every matrix. Techniques may have taken all of them over.
        if self.world_size == 1 or not self.matrices:
            return [updates[i] for i in range(len(self.matrices))]
        sizes = [m.shape.numel() for m in self.matrices]
        # Each element comes from one rank and the others add zeros, so that the sum is exact in bf16, too.
        flat = torch.zeros(sum(sizes), dtype=embed_dtype(self.optim.muon_dtype), device=self.device)
        views = [v.view(m.shape) for v, m in zip(flat.split(sizes), self.matrices, strict=True)]
        for i, update in updates.items():
            views[i].copy_(update)
        dist.all_reduce(flat)
        # Values of another dtype than their updates would be a launch each.
        whole = flat.to(self.params[0].dtype)
        return [v.view(m.shape) for v, m in zip(whole.split(sizes), self.matrices, strict=True)]
