"""Two public ways to mix a byte predictor into tokens are no distributions, and the proof of each run says so."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pytest
import torch

from golf.lab.proofs.legality import predictor_breaches
from golf.training.scoring.predictor import Predictions, Predictor, Proposal, mixed

# Four bytes; 9 of 16 pairs and 8 of 64 triples: the bytes' product sums to 1 + 9/16 + 8/64 = 1.69 where all are alike.
SINGLES = [(a,) for a in range(4)]
PAIRS = [(a, b) for a in range(4) for b in range(4)][:9]
TRIPLES = [(*pair, c) for pair in PAIRS[:4] for c in range(2)]
TOKENS = [*SINGLES, *PAIRS, *TRIPLES]
TEXT = np.random.default_rng(1).choice(len(TOKENS), 40)
Form = Callable[["Toy", tuple[int, ...]], float]


class Toy(Predictor):
    """A mixture of random token probabilities and of counts of bytes, in one of the forms below."""

    def __init__(self, form: Form, share: float):
        self.form, self.share = form, share
        self.reset()

    def reset(self) -> None:
        self.counts, self.seen = np.ones(4), 0

    def propose(self, history: np.ndarray) -> Proposal:
        p = np.random.default_rng([256, self.seen]).dirichlet(np.full(len(TOKENS), 0.1))
        self.p = dict(zip(TOKENS, p.tolist(), strict=True))
        return Proposal(1.0, lambda token: self.form(self, TOKENS[token]))

    def see(self, token: int) -> None:
        self.seen += 1
        # From the second token on, so that all bytes are alike for the first target.
        if self.seen > 1:
            np.add.at(self.counts, list(TOKENS[token]), 1)

    def byte(self, b: int) -> float:
        return float(self.counts[b] / self.counts.sum())

    def mass(self, prefix: tuple[int, ...]) -> float:
        return sum(p for token, p in self.p.items() if token[: len(prefix)] == prefix)


def spread(toy: Toy, token: tuple[int, ...]) -> float:
    """Every byte of a token of n bytes has p^(1/n)."""
    each = toy.p[token] ** (1 / len(token))
    return math.prod(toy.share * each + (1 - toy.share) * toy.byte(b) for b in token)


def first_byte(toy: Toy, token: tuple[int, ...]) -> float:
    """The first byte has its marginal, and all others together what is left."""
    marginal = toy.mass(token[:1])
    rest = toy.share * toy.p[token] / marginal + (1 - toy.share) * math.prod(map(toy.byte, token[1:]))
    return (toy.share * marginal + (1 - toy.share) * toy.byte(token[0])) * rest


def trie(toy: Toy, token: tuple[int, ...]) -> float:
    """A token also pays for its end, and the bytes share what the ends leave."""
    found = 1.0
    for n in range(len(token) + 1):
        mass, end = toy.mass(token[:n]), toy.p.get(token[:n], 0.0)
        if n == len(token):
            return found * end / mass
        following = {t[n] for t in TOKENS if t[:n] == token[:n] and len(t) > n}
        q = toy.byte(token[n]) / sum(map(toy.byte, following))
        by_model = toy.mass(token[: n + 1]) / (mass - end)
        found *= (1 - end / mass) * (toy.share * by_model + (1 - toy.share) * q)
    return found


@pytest.mark.parametrize(
    ("form", "share", "total"),
    [
        *((spread, 0.9, 0.98), (spread, 0.5, 1.10), (spread, 0.0, 1.69)),
        *((first_byte, 0.9, 1.07), (first_byte, 0.5, 1.36), (first_byte, 0.0, 1.69)),
    ],
)
def test_public_forms_are_refused(form: Form, share: float, total: float) -> None:
    (sentence,) = predictor_breaches(Toy(form, share), len(TOKENS), TEXT)
    found = re.match(r"the probabilities of all tokens for target 0 sum to ([\d.]+)", sentence)
    assert found and float(found[1]) == pytest.approx(total, abs=0.006), sentence


@pytest.mark.parametrize("share", [1.0, 0.9, 0.5, 0.0])
def test_a_trie_with_ends_is_a_distribution(share: float) -> None:
    assert predictor_breaches(Toy(trie, share), len(TOKENS), TEXT) == []
    toy = Toy(trie, 1.0)
    toy.propose(TEXT[:1])
    assert all(trie(toy, token) == pytest.approx(p, abs=1e-15) for token, p in toy.p.items())


@pytest.mark.parametrize("form", [spread, first_byte])
def test_the_model_alone_passes_in_every_form(form: Form) -> None:
    assert predictor_breaches(Toy(form, 1.0), len(TOKENS), TEXT) == []


class Peeking(Toy):
    """A `follow` that reads the whole text first."""

    def follow(self, tokens: np.ndarray) -> Predictions:
        found = super().follow(tokens)
        np.copyto(found.strengths, float(tokens[-1] % 2))
        return found


def test_a_prediction_that_knows_later_tokens_is_refused() -> None:
    (sentence,) = predictor_breaches(Peeking(trie, 0.5), len(TOKENS), TEXT)
    assert "knows a later token" in sentence


class Generous(Toy):
    """One that is a distribution until it has seen 2,000 tokens."""

    def propose(self, history: np.ndarray) -> Proposal:
        strength, probability = super().propose(history)
        return Proposal(strength, lambda token: probability(token) * (1.3 if history.size > 2000 else 1.0))


def test_a_distribution_is_asked_for_late_in_a_text_too() -> None:
    (sentence,) = predictor_breaches(Generous(trie, 0.5), len(TOKENS), np.resize(TEXT, 4096), first=30)
    assert sentence.startswith("the probabilities of all tokens for target 2048 sum to 1.3,")


def test_the_mixture_is_its_formula() -> None:
    nats, shares, kept = torch.tensor([0.5, 2.0, 3.0]), torch.tensor([0.2, 0.0, 1.0]), torch.tensor([0.7, 0.9, 1.0])
    expected = -torch.log(kept * torch.exp(-nats) + (1 - kept) * shares)
    torch.testing.assert_close(mixed(nats, shares, torch.log(kept)), expected)
