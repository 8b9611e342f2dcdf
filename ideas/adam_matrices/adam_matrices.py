"""AdamW on the matrices in place of Muon."""

from __future__ import annotations

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


def one_number(shape: torch.Size) -> tuple[int, int]:
    """Return the shape of the count of steps of a matrix."""
    return 1, 1


@technique("adam_matrices")
@dataclass
class AdamMatrices(Technique):
    """`optim.matrix_lr` and `optim.muon_wd` are its rate and decay; Muon's rates are some 30 times too large for it."""

    source = "PR #1106, arXiv 1711.05101"
    effect = CHANGES_STEP
    conflicts = ("cautious", "centralized", "lion_matrices", "normuon", "soap")

    beta1: float = number(0.9, at_least=0, below=1)  # of the mean of gradients
    beta2: float = number(0.95, at_least=0, below=1)  # of the mean of squares
    eps: float = number(1e-8, above=0)

    def matrix_rule(self, rule: MatrixRule, cfg: Config) -> MatrixRule:
        """Return the rule with AdamW in place of momentum and orthogonalisation."""
        update = partial(adam_update, beta1=self.beta1, beta2=self.beta2, eps=self.eps)
        return rule.replaced(update, exp_avg=tuple, exp_avg_sq=tuple, steps=one_number)
