"""Ratio loss of H-Net: it keeps the share of boundaries near one in a number of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import Tensor

from golf.settings.config import Config
from golf.settings.fields import number
from golf.training.model.objective import Pass, Term
from golf.training.techniques.base import CHANGES_LOSS, Technique, technique


def ratio_loss(done: Pass, *, weight: float, target: float) -> Tensor:
    """Return weight · N/(N−1) · ((N−1)·F·G + (1−F)·(1−G)), a scalar with N `target`.

    F is the share of tokens with a probability of at least 1/2, and G the mean probability.
    """
    p = done.shared["hnet.probability"]
    hard, soft = (p >= 0.5).to(p.dtype).mean(), p.mean()
    return weight * target / (target - 1) * ((target - 1) * hard * soft + (1 - hard) * (1 - soft))


@technique("chunk_ratio")
@dataclass
class ChunkRatio(Technique):
    """Boundaries that `tech.hnet.cap` has no room for count in F, so that the loss acts on them, too."""

    source = "H-Net, arXiv 2507.07955; PR #1104"
    effect = CHANGES_LOSS
    requires = ("hnet",)

    weight: float = number(0.03, above=0)  # of the loss, which is 1 where F = G = 1/N
    target: float = number(4.0, above=1)  # N, tokens for each chunk

    def training_terms(self, cfg: Config) -> list[Term]:
        """Return the term."""
        return [partial(ratio_loss, weight=self.weight, target=self.target)]
