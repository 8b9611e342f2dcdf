"""Label smoothing: training wants a little probability on every token."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import Tensor

from golf.settings.config import Config
from golf.settings.fields import number
from golf.training.model.objective import Pass, Term
from golf.training.techniques.base import CHANGES_LOSS, Technique, technique


def smoothing(done: Pass, *, share: float) -> Tensor:
    """Return share · mean(logsumexp(z) − mean(z) − nats), which makes (1 − share)·nats + share·uniform of the loss."""
    logits = done.logits()
    uniform = logits.logsumexp(dim=-1) - logits.mean(dim=-1)
    return share * (uniform - done.nats).mean()


@technique("label_smoothing")
@dataclass
class LabelSmoothing(Technique):
    """The nats of a uniform target take the place of a share of the loss."""

    source = "arXiv 1512.00567, PR #667, PR #149"
    effect = CHANGES_LOSS

    share: float = number(0.05, above=0, below=1)  # of the uniform target

    def training_terms(self, cfg: Config) -> list[Term]:
        """Return the term."""
        return [partial(smoothing, share=self.share)]
