"""A predictor beside the model: the score of a target is -log((1 - λ)·p + λ·q).

p is the model's probability, q that of a predictor which follows the text. q and its strength λ come from the tokens
before the target alone, and q sums to one over the vocabulary: then the mixture does, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from golf.bits import STANDARD, Score
from golf.registry import CHANGES_SCORE
from golf.settings.config import Config, techniques
from golf.training.scoring.document_queue import list_documents
from golf.training.scoring.forward import LossesAt
from golf.training.scoring.tally import Tally
from golf.training.scoring.windows import Batch


class Proposal(NamedTuple):
    """A predictor's distribution over the next token."""

    strength: float  # λ, 0 to 1
    probability: Callable[[int], float]  # q of a token; over the vocabulary they sum to one


class Predictions(NamedTuple):
    """A predictor's probabilities of all targets."""

    shares: np.ndarray  # float32 [N], q of the target
    strengths: np.ndarray  # float32 [N], λ; with hints the logarithm β of the factor on the hint
    # int64 [N], tokens whose probability p by the model sets λ = 1 - 1/Z with Z = 1 + p·(exp(β) - 1)
    hints: np.ndarray | None = None


class FollowsText(Protocol):
    """The methods of a predictor that scores call."""

    name: str
    in_text_order: bool

    def follow(self, tokens: np.ndarray) -> Predictions:
        """Return what it says of every target of `tokens` `[N + 1]`."""


class Predictor(Protocol):
    """Base of a technique's predictor. It follows a text, or with `eval.documents` each document from its beginning."""

    name: str = ""  # the technique's, in the name of the score
    in_text_order: bool = False  # True: even where documents are scored in another order, which no rule allows

    def reset(self) -> None:
        """Forget all text."""

    def propose(self, history: np.ndarray) -> Proposal:
        """Return what follows the tokens `history` `[n]`, all of which `see` has had; n is 1 or more."""

    def see(self, token: int) -> None:
        """Take in the next token of the text, once it is scored."""

    def follow(self, tokens: np.ndarray) -> Predictions:
        """Return what it says of every target of `tokens` `[N + 1]`. An override for speed has to say the same."""
        shares, strengths = np.empty((2, tokens.size - 1), np.float32)
        self.reset()
        self.see(int(tokens[0]))
        for i, target in enumerate(tokens[1:].tolist()):
            strengths[i], probability = self.propose(tokens[: i + 1])
            shares[i] = probability(target)
            self.see(target)
        return Predictions(shares, strengths)


def predictor_of(cfg: Config) -> Predictor:
    """Return a new predictor of the technique that declares `CHANGES_SCORE`, of which a run has one."""
    (technique,) = (technique for technique in techniques(cfg) if technique.effect == CHANGES_SCORE)
    predictor = technique.predictor(cfg)
    predictor.name = technique.name
    return predictor


class MixedTally(Tally):
    """Sums over targets, of which those that `losses` is asked for are mixed with a predictor's."""

    def __init__(self, predictor: FollowsText, by_document: bool, tokens: np.ndarray, *others: Any):
        super().__init__(tokens, *others)
        self.predictor, self.by_document = predictor, by_document

    @functools.cached_property
    def predictions(self) -> Predictions:
        """Predictions for all targets, on every rank. The first window asks for them, so that their seconds count."""
        if not self.by_document:
            return follow_in_order(self.predictor, self.tokens, None if self.predictor.in_text_order else self.queued)
        found = [self.predictor.follow(self.tokens[i : i + n + 1]) for i, n in list_documents(self.tokens).tolist()]
        return Predictions(*(np.concatenate(parts) for parts in zip(*(f[:2] for f in found), strict=True)))

    def batch_nats(self, losses_at: LossesAt, batch: Batch) -> Tensor:
        """Return the mixed nats `[B, S]` of the targets of `batch`; with hints `losses_at` gives theirs, too."""
        asked = self.asked(batch)
        nats = losses_at(*map(self.ranks.send, (batch.ids, batch.positions, *asked)))
        return self.scores(batch, nats.view(asked.shape))

    def scores(self, batch: Batch, nats: Tensor) -> Tensor:
        """Return the mixed nats `[B, S]` from those of what was `asked`, `[K, B, S]`."""
        shares, strengths = self.at(batch)
        return mixed(nats[0], shares, torch.log1p(-strengths))

    def at(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return shares and strengths `[B, S]` of the targets of `batch`."""
        found, indices = self.predictions, self._indices(batch)
        return self.ranks.send(found.shares[indices]), self.ranks.send(found.strengths[indices])

    def _indices(self, batch: Batch) -> np.ndarray:
        # Columns behind the split's end are not scored, and have no prediction.
        return np.minimum(batch.indices, self.tokens.size - 2)

    def score(self, how: str = STANDARD) -> Score:
        """Return the score over all ranks, whose name says whether it is mixed."""
        return super().score(f"{how}, {self.predictor.name}" if "predictions" in self.__dict__ else how)


def follow_in_order(predictor: FollowsText, tokens: np.ndarray, documents: np.ndarray | None) -> Predictions:
    """Return what it says of `tokens` `[N + 1]` as if `documents` `[n, 2]` were a text in their order."""
    if documents is None:
        return predictor.follow(tokens)
    places = np.concatenate([np.arange(start, start + targets) for start, targets in documents.tolist()])
    found, back = predictor.follow(np.append(tokens[places], tokens[-1])), places.argsort()
    return Predictions(found.shares[back], found.strengths[back], None if found.hints is None else found.hints[back])


def mixed(nats: Tensor, shares: Tensor, log_kept: Tensor) -> Tensor:
    """Return -log((1 - λ)·exp(-nats) + λ·q) with q the `shares` of the targets and `log_kept` = log(1 - λ)."""
    return -torch.logaddexp(log_kept - nats, torch.log(-torch.expm1(log_kept)) + torch.log(shares))
