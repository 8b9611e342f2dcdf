"""Lion on the matrices in place of Muon: steps are signs of a short mean of gradients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import Tensor

from golf.settings.config import Config
from golf.settings.fields import number
from golf.training.optim.rules import MatrixRule, State
from golf.training.techniques.base import CHANGES_STEP, Technique, technique


def lion_update(grads: Tensor, state: State, *, beta1: float, beta2: float, rate: float = 1.0) -> Tensor:
    """Return rate · sign(β₁m + (1−β₁)g) `[n, r, c]`, and move m on by β₂."""
    mean, wide = state["exp_avg"], grads.float()
    update = (mean * beta1).add_(wide, alpha=1 - beta1).sign()
    mean.mul_(beta2).add_(wide, alpha=1 - beta2)
    return update.mul_(rate)


@technique("lion_matrices")
@dataclass
class LionMatrices(Technique):
    """Decay is `optim.matrix_lr` · `optim.muon_wd`, as Muon's is, whatever `rate` says."""

    source = "arXiv 2302.06675"
    effect = CHANGES_STEP
    conflicts = ("cautious", "centralized", "normuon", "soap")

    beta1: float = number(0.9, at_least=0, below=1)  # of the mean whose sign is the step
    beta2: float = number(0.99, at_least=0, below=1)  # of the mean that is kept
    rate: float = number(0.005, above=0)  # share of optim.matrix_lr: a step of one sign is far larger than Muon's

    def matrix_rule(self, rule: MatrixRule, cfg: Config) -> MatrixRule:
        """Return the rule with Lion in place of momentum and orthogonalisation."""
        return rule.replaced(partial(lion_update, beta1=self.beta1, beta2=self.beta2, rate=self.rate), exp_avg=tuple)
