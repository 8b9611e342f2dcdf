"""An n-gram model of the tokens scored so far, with absolute discounting, mixed into the scores."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from golf.settings.config import Config
from golf.settings.fields import number
from golf.training.scoring.predictor import Predictor, Proposal
from golf.training.techniques.base import CHANGES_SCORE, Technique, technique


class NGrams(Predictor):
    """q_n(t) = (max(c(t) - D, 0) + D·u·q_{n-1}(t)) / Σc for the context of n tokens, and q_{-1} = 1/V.

    c are the counts of the tokens that have followed the context, u of which are not zero. A context that has not been
    seen gives q_{n-1}. Each q_n sums to one, because the first terms sum to Σc - D·u.
    """

    def __init__(self, longest: int, least: int, strength: float, discount: float, vocab_size: int):
        self.longest, self.least, self.strength, self.discount = longest, least, strength, discount
        self.vocab_size = vocab_size
        self.reset()

    def reset(self) -> None:
        self.counts: defaultdict[tuple[int, ...], dict[int, int]] = defaultdict(dict)
        self.totals: defaultdict[tuple[int, ...], int] = defaultdict(int)
        self.last: tuple[int, ...] = ()

    def contexts(self) -> list[tuple[int, ...]]:
        """Return the contexts of the next token, shortest first."""
        return [self.last[len(self.last) - n :] for n in range(len(self.last) + 1)]

    def propose(self, history: np.ndarray) -> Proposal:
        """Return q of the longest context, at full strength once `least` of its tokens have been seen before."""
        seen = [(self.counts[c], self.totals[c]) for c in self.contexts() if c in self.totals]

        def probability(token: int) -> float:
            q = 1.0 / self.vocab_size
            for counts, total in seen:
                q = (max(counts.get(token, 0) - self.discount, 0.0) + self.discount * len(counts) * q) / total
            return q

        return Proposal(self.strength if len(seen) > self.least else 0.0, probability)

    def see(self, token: int) -> None:
        for context in self.contexts():
            followers = self.counts[context]
            followers[token] = followers.get(token, 0) + 1
            self.totals[context] += 1
        self.last = (*self.last, token)[-self.longest :]


@technique("token_ngram")
@dataclass
class TokenNGram(Technique):
    """Its counts are kept by each rank in dicts of Python, and its seconds count as evaluation."""

    source = "absolute discounting, Ney, Essen and Kneser 1994"
    effect = CHANGES_SCORE

    longest: int = number(4, at_least=1)  # tokens of the longest context
    least: int = number(2, at_least=1)  # tokens of a context that has been seen, from which the predictor counts
    strength: float = number(0.1, above=0, below=1)  # λ, its share of the mixture
    discount: float = number(0.75, above=0, below=1)  # D, taken off each count

    def predictor(self, cfg: Config) -> NGrams:
        """Return the predictor before any text."""
        return NGrams(self.longest, self.least, self.strength, self.discount, cfg.model.vocab_size)
