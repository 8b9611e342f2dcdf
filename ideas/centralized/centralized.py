"""Gradient centralisation: the momentum of every neuron has mean zero before it is orthogonalised."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from golf.settings.config import Config
from golf.training.optim.rules import MatrixRule, State
from golf.training.techniques.base import CHANGES_STEP, Technique, technique


def centred(momentum: Tensor, _: Tensor, __: State) -> Tensor:
    """Return the momentum `[n, r, c]` less its mean over the inputs of each row."""
    return momentum - momentum.mean(dim=2, keepdim=True)


@technique("centralized")
@dataclass
class Centralized(Technique):
    """It acts behind `optim.muon_row_normalize`, as in the public script."""

    source = "arXiv 2004.01461, PR #2101"
    effect = CHANGES_STEP

    def matrix_rule(self, rule: MatrixRule, cfg: Config) -> MatrixRule:
        """Return `rule` with the centring before its orthogonalisation."""
        return rule.with_before(centred)
