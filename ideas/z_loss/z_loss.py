"""z-loss: training keeps the logarithm of the softmax's sum near zero."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import Tensor

from golf.settings.config import Config
from golf.settings.fields import number
from golf.training.model.objective import Pass, Term
from golf.training.techniques.base import CHANGES_LOSS, Technique, technique


def squared_log_sum(done: Pass, *, weight: float) -> Tensor:
    """Return weight · mean(logsumexp(logits)²), a scalar."""
    return weight * done.logits().logsumexp(dim=-1).square().mean()


@technique("z_loss")
@dataclass
class ZLoss(Technique):
    """With logits capped to ±c the logarithm is at most c + ln V."""

    source = "PaLM, arXiv 2204.02311; the ternary record of 24 March"
    effect = CHANGES_LOSS

    weight: float = number(1e-4, above=0)  # of the term

    def training_terms(self, cfg: Config) -> list[Term]:
        """Return the term."""
        return [partial(squared_log_sum, weight=self.weight)]
