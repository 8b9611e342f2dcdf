"""AdamW on the matrices in place of Muon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from golf.settings.config import Config
from golf.settings.fields import number
from golf.training.optim.rules import MatrixRule, State
from golf.training.techniques.base import CHANGES_STEP, Technique, technique


def adam_update(grads: Tensor, state: State, *, beta1: float, beta2: float, eps: float) -> Tensor:
    """Return m̂ / (√v̂ + eps) `[n, r, c]`, both moments corrected for their start at zero."""
    mean, squares, steps = state["exp_avg"], state["exp_avg_sq"], state["steps"]
    steps += 1
    mean.lerp_(grads.float(), 1 - beta1)
    squares.mul_(beta2).addcmul_(grads.float(), grads.float(), value=1 - beta2)
    return (mean / (1 - beta1**steps)) / ((squares / (1 - beta2**steps)).sqrt() + eps)


def scaled(grads: Tensor, state: State, *, update: Callable[[Tensor, State], Tensor], by: float) -> Tensor:
    """Return the update `[n, r, c]` times `by`."""
    return update(grads, state).mul_(by)


def one_number(shape: torch.Size) -> tuple[int, int]:
    """Return the shape of the count of steps of a matrix."""
    return 1, 1


@technique("adam_matrices")
@dataclass
class AdamMatrices(Technique):
    """Decay is `optim.matrix_lr` · `optim.muon_wd`, as Muon's is, whatever `rate` says."""

    source = "PR #1106, arXiv 1711.05101"
    effect = CHANGES_STEP
    conflicts = ("cautious", "centralized", "lion_matrices", "normuon", "soap")

    beta1: float = number(0.9, at_least=0, below=1)  # of the mean of gradients
    beta2: float = number(0.95, at_least=0, below=1)  # of the mean of squares
    eps: float = number(1e-8, above=0)
    rate: float = number(0.03, above=0)  # share of optim.matrix_lr: Muon's rates are about 30 times too large

    def matrix_rule(self, rule: MatrixRule, cfg: Config) -> MatrixRule:
        """Return the rule with AdamW in place of momentum and orthogonalisation."""
        update = partial(adam_update, beta1=self.beta1, beta2=self.beta2, eps=self.eps)
        update = partial(scaled, update=update, by=self.rate)
        return rule.replaced(update, exp_avg=tuple, exp_avg_sq=tuple, steps=one_number)
