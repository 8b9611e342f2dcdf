"""JEPA on patches of tokens: training also predicts the mean embedding of the next patch, by a head of its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import Tensor

from golf.errors import GolfError
from golf.settings.config import Config
from golf.settings.fields import number
from golf.training.data.documents import BOS_ID
from golf.training.model.gpt import GPT
from golf.training.model.layers import MLP, rms_norm
from golf.training.model.objective import Pass, Term
from golf.training.techniques.base import CHANGES_LOSS, Technique, technique

LEAST_NORM = 0.1  # keeps the gradient small while the head is zero; unit vectors have the length √d before


def unit(v: Tensor) -> Tensor:
    """Return `v` `[..., d]` scaled to length 1, or less where it is not longer than `LEAST_NORM`."""
    return v / (v.square().sum(-1, keepdim=True) + LEAST_NORM**2).sqrt()


def next_patch(done: Pass, *, weight: float, patch: int, spread_weight: float, least_spread: float) -> Tensor:
    """Return weight · (the error of the next patch + what keeps channels from collapsing), a float32 scalar.

    A patch in which a document begins is no target.
    """
    rows, patches = done.ids.size(0), done.ids.size(1) // patch
    ids = done.ids[:, : patches * patch].view(rows, patches, patch)
    # The state at a patch's last token has seen the whole patch and nothing behind it.
    states = done.hidden[:, patch - 1 : (patches - 1) * patch : patch]
    predicted = done.model.training_only["jepa"](rms_norm(states), done.active).float()
    target = rms_norm(done.model.tok_emb(ids[:, 1:]).detach().float().mean(2))
    valid = (ids[:, 1:] != BOS_ID).all(2).float()
    errors = (unit(predicted) - unit(target)).square().mean(-1)
    flat = predicted.flatten(0, 1)
    # A spread of zero has no gradient by torch's std, and the error moves the head away from it.
    collapse = (least_spread - flat.std(0, correction=0)).relu().mean()
    return weight * ((valid * errors).sum() / valid.sum().clamp(min=1) + spread_weight * collapse)


@technique("jepa")
@dataclass
class JEPA(Technique):
    """The target is the normalised mean of token embeddings, through which no gradient flows."""

    source = "PR #1243"
    effect = CHANGES_LOSS
    groups = (("training_only.jepa.*.weight", "matrix"),)

    weight: float = number(0.1, above=0)  # of the term
    patch: int = number(8, at_least=1)  # tokens of a patch
    spread_weight: float = number(0.02, at_least=0)  # of the channels' missing spread, within the term
    least_spread: float = number(0.5, at_least=0)  # standard deviation that a predicted channel should have

    def check(self, cfg: Config) -> None:
        """Refuse sequences without a next patch."""
        if 2 * self.patch > cfg.data.train_seq_len:
            raise GolfError(f"tech.jepa.patch={self.patch} has to be half of data.train_seq_len or less.")

    def edit_model(self, model: GPT, cfg: Config) -> None:
        """Add the head W₂ · relu²(W₁x), whose W₂ begins at zero."""
        model.training_only["jepa"] = MLP(cfg.model.model_dim, cfg.model.model_dim)

    def training_terms(self, cfg: Config) -> list[Term]:
        """Return the term."""
        how = {"patch": self.patch, "spread_weight": self.spread_weight, "least_spread": self.least_spread}
        return [partial(next_patch, weight=self.weight, **how)]
