"""Against counts that are made anew for every position, in exact fractions; one and two ranks."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest

import golf
from golf.lab.proofs.legality import predictor_breaches
from golf.lab.proofs.random_model import RandomWeights
from golf.lab.proofs.scoring_proofs import improper_predictor
from golf.settings.config import Config
from golf.training.data.dataset import Dataset
from golf.training.ranks import Ranks
from golf.training.scoring.predictor import predictor_of
from golf.training.scoring.scorer import Scorer
from golf.training.scoring.tally import Observe

SMALL = [
    *("model=4l", "scale=laptop", "model.num_layers=1", "model.model_dim=32", "model.num_heads=2"),
    *("model.num_kv_heads=1", "model.compute_dtype=fp32", "eval.dtype=fp32", "data.train_seq_len=32"),
    *("eval.val_batch_tokens=1024", "eval.stride=8", "launch.device=cpu", "launch.compile=off"),
]
TEXT = np.random.default_rng(0).choice([7, 8, 9, 300], 201).astype(np.uint16)


def composed(*overrides: str) -> Config:
    return golf.compose([*SMALL, "tech=[token_ngram]", *overrides])


def written_out(history: list[int], token: int, longest: int, discount: Fraction, vocab_size: int) -> Fraction:
    """q of a token, with the counts of every context taken from the whole history."""
    q = Fraction(1, vocab_size)
    for n in range(min(longest, len(history)) + 1):
        context = history[len(history) - n :]
        after = [history[i] for i in range(n, len(history)) if history[i - n : i] == context]
        if after:
            q = (max(after.count(token) - discount, 0) + discount * len(set(after)) * q) / len(after)
    return q


def test_probabilities_are_those_of_fresh_counts() -> None:
    predictor = predictor_of(composed("tech.token_ngram.longest=3", "tech.token_ngram.discount=0.5"))
    predictor.reset()
    history: list[int] = []
    for token in TEXT[:60].tolist():
        predictor.see(token)
        history.append(token)
        _, probability = predictor.propose(np.array(history))
        for asked in (7, 300, 500):
            expected = written_out(history, asked, 3, Fraction(1, 2), 1024)
            assert math.isclose(probability(asked), expected, rel_tol=1e-12)


@pytest.mark.parametrize("strength", [0.01, 0.5, 0.99])
def test_it_is_a_distribution_over_all_tokens_everywhere(strength: float) -> None:
    predictor = predictor_of(composed(f"tech.token_ngram.strength={strength}"))
    assert predictor_breaches(predictor, 1024, TEXT) == []


def nats(cfg: Config, ranks: Ranks, text: np.ndarray = TEXT) -> np.ndarray:
    found = np.full(text.size - 1, np.nan)

    def observe(indices: np.ndarray, values: np.ndarray) -> None:
        found[indices] = values

    watched: Observe = observe
    weights = RandomWeights(32).model(cfg).float().scored_weights()
    Scorer(cfg, Dataset([], [], text, np.ones(text.size - 1, np.int16), ""), ranks).sliding(weights, observe=watched)
    return found


class Share(Ranks):
    """One of two ranks, without the other."""

    def sum(self, *values: float) -> list[float]:
        return list(values)


def test_scores_are_the_mixture_on_one_rank_and_on_two() -> None:
    cfg, plain = composed(), composed("drop=[token_ngram]")
    mixed, alone = nats(cfg, Ranks()), nats(plain, Ranks())
    found = predictor_of(cfg).follow(TEXT)
    shares, strengths = found.shares.astype(np.float64), found.strengths.astype(np.float64)
    expected = -np.log((1 - strengths) * np.exp(-alone) + strengths * shares)
    np.testing.assert_allclose(mixed, expected, rtol=1e-5)
    assert 0 < np.count_nonzero(strengths) < strengths.size and mixed.mean() < alone.mean()
    halves = [nats(cfg, Share(rank, 2)) for rank in range(2)]
    np.testing.assert_allclose(np.where(np.isnan(halves[0]), halves[1], halves[0]), mixed, rtol=1e-5)
    assert np.isnan(halves[0]).any() and np.isnan(halves[1]).any()


def test_each_document_begins_without_counts() -> None:
    cfg, text = composed("eval.documents=true"), TEXT.copy()
    text[[0, 90]] = 1
    later = nats(cfg, Ranks(), text)[90:]
    text[20:60] = 9
    np.testing.assert_allclose(nats(cfg, Ranks(), text)[90:], later, rtol=1e-6)


@pytest.mark.slow
def test_the_proof_before_each_run_passes() -> None:
    assert improper_predictor(composed()) == []


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["eval.stride=0"], "set eval.stride"),
        (["eval.tilt.method=ngram"], "are both mixed into the scores"),
    ],
)
def test_what_does_not_go_together_is_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(golf.GolfError, match=said):
        composed(*overrides)


def test_settings_are_the_predictors() -> None:
    cfg = composed("tech.token_ngram.longest=2")
    assert dataclasses.asdict(cfg.tech["token_ngram"])["longest"] == 2
    assert predictor_of(cfg).longest == 2
