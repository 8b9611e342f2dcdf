"""Cautious steps: elements whose update opposes the gradient are left out, and decay acts where it helps the update."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from golf.errors import GolfError
from golf.settings.config import Config
from golf.training.optim.rules import MatrixRule, State
from golf.training.techniques.base import CHANGES_STEP, WEIGHTS, Technique, technique

LEAST_SHARE = 1e-3  # of the elements that are kept


def along_the_gradient(update: Tensor, grads: Tensor, _: State) -> Tensor:
    """Return the update `[n, r, c]` where its sign is the gradient's, larger by the share of such elements."""
    kept = (update * grads > 0).to(update.dtype)
    return update * kept / kept.mean(dim=(1, 2), keepdim=True).clamp(min=LEAST_SHARE)


def decay_along_the_update(values: list[Tensor], updates: list[Tensor], lr: float, weight_decay: float) -> None:
    """Set every W ← W − lr·update − lr·weight_decay·W·[update·W ≥ 0] in place."""
    for value, update in zip(values, updates, strict=True):
        if weight_decay:
            value.sub_(value * (update * value >= 0), alpha=lr * weight_decay)
        value.add_(update, alpha=-lr)


@technique("cautious")
@dataclass
class Cautious(Technique):
    """The update comes last among the rules, so that the mask is that of what is added."""

    source = "arXiv 2411.16085, PR #1381; the decay is nanochat's"
    effect = CHANGES_STEP
    phase = WEIGHTS

    update: bool = True  # leave out elements of the update that oppose the gradient
    decay: bool = True  # decay only weights that the update makes smaller

    def check(self, cfg: Config) -> None:
        """Refuse settings under which nothing is cautious."""
        if not self.update and not (self.decay and cfg.optim.muon_wd):
            raise GolfError("tech.cautious changes nothing: set tech.cautious.update=true, or optim.muon_wd above 0.")

    def matrix_rule(self, rule: MatrixRule, cfg: Config) -> MatrixRule:
        """Return `rule` with the chosen parts."""
        if self.update:
            rule = rule.with_after(along_the_gradient)
        return rule.with_apply(decay_along_the_update) if self.decay else rule
