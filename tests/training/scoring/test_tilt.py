"""The n-gram tilt: hints against a slow definition, a proper distribution, and the forms that are not legal."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter, defaultdict
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from golf.lab.proofs.scoring_proofs import scoring_breaches
from golf.settings.config import TTTRecipe
from golf.settings.scoring_config import EvalConfig, TiltConfig, TTTConfig
from golf.training.ranks import Ranks
from golf.training.scoring import tilt
from golf.training.scoring.document_queue import list_documents
from golf.training.scoring.predictor import Predictions, follow_in_order
from golf.training.scoring.tally import Tally
from golf.training.scoring.tilt import HEDGED, NO_HINT, Hints, NgramTilt, TiltedTally, find_hints
from golf.training.scoring.ttt_lora import LoraScoring
from golf.training.scoring.windows import Batch
from tests.lab.proofs.test_legality import breaches
from tests.support import compose, parity
from tests.training.scoring.small import SEQ_LEN, TABLES, Observed, small_model, small_tokens

TILT = TiltConfig(method="ngram", contexts=[3, 1], least_shares=[0.5, 0.6], least_counts=[1, 2])
ALWAYS = TiltConfig(method="ngram", contexts=[1], least_shares=[0.0], least_counts=[1])
TILTED = EvalConfig(stride=4, tilt=ALWAYS)
PROBE = (29,)


def hints_written_out(tokens: list[int], settings: TiltConfig) -> list[tuple[int, float]]:
    """Hint and share of every target, with tables that are filled token by token."""
    followers: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    best: dict[tuple[int, ...], int] = {}
    found = []
    for i in range(len(tokens) - 1):
        hint = (NO_HINT, 0.0)
        for length, share, count in zip(settings.contexts, settings.least_shares, settings.least_counts, strict=True):
            context = tuple(tokens[i - length + 1 : i + 1])
            seen = followers[context]
            if length <= i + 1 and seen.total() >= count and seen[best[context]] / seen.total() >= share:
                hint = best[context], seen[best[context]] / seen.total()
                break
        found.append(hint)
        # Only now is the target known.
        for length in settings.contexts:
            if length <= i + 1:
                context, token = tuple(tokens[i - length + 1 : i + 1]), tokens[i + 1]
                followers[context][token] += 1
                if context not in best or followers[context][token] > followers[context][best[context]]:
                    best[context] = token
    return found


@given(st.lists(st.integers(0, 3), min_size=2, max_size=80))
def test_hints_are_those_of_tables_filled_token_by_token(tokens: list[int]) -> None:
    found = find_hints(np.array(tokens, dtype=np.uint16), TILT)
    assert list(zip(found.tokens.tolist(), found.shares.tolist(), strict=True)) == pytest.approx(
        [pytest.approx(pair) for pair in hints_written_out(tokens, TILT)]
    )


def test_parity_with_a_constant_strength_and_one_context() -> None:
    """PR #2135: hints and gates exactly, and the tilted nats."""
    arrays, config = parity("tilt2135")
    given = config["settings"]
    settings = TiltConfig(
        method="ngram",
        contexts=[given["token_order"] - 1],
        least_shares=[given["token_threshold"]],
        least_counts=[1],
        beta=given["token_boost"],
        strength="constant",
    )
    tokens = arrays["tokens"]
    targets = tokens.size - 1
    tally = TiltedTally(NgramTilt(settings), False, tokens, np.ones(targets, np.int16), Ranks())
    indices = np.arange(targets)[None]
    batch = Batch(indices, indices, tokens[None, 1:].astype(np.int64), indices, np.full((1, targets), True))
    hints = tally.predictions.hints
    assert hints is not None
    is_open = hints != NO_HINT
    assert (is_open == arrays["gate"]).all() and (hints[is_open] == arrays["hint"][is_open]).all()
    assert (tally.asked(batch)[1, 0] == np.where(arrays["gate"], arrays["hint"], 0)).all()
    nats = torch.from_numpy(np.stack((arrays["nats"], -arrays["log_p_hint"]))[:, None])
    torch.testing.assert_close(tally.scores(batch, nats)[0], torch.from_numpy(arrays["tilted"]), rtol=0, atol=1e-5)


@given(st.lists(st.integers(1, 4), min_size=2, max_size=80), st.randoms(use_true_random=False))
def test_hints_in_an_order_are_those_of_the_text_in_that_order(text: list[int], random: Random) -> None:
    tokens = np.array([1, *text], dtype=np.uint16)
    documents = list_documents(tokens).tolist()
    random.shuffle(documents)
    found = follow_in_order(NgramTilt(TILT), tokens, np.array(documents))
    assert found.hints is not None
    laid = [int(tokens[i]) for start, targets in documents for i in range(start, start + targets)]
    expected, place = hints_written_out([*laid, int(tokens[-1])], TILT), 0
    for start, targets in documents:
        own = slice(start, start + targets)
        hints = zip(found.hints[own].tolist(), found.strengths[own] / TILT.beta, strict=True)
        assert list(hints) == [pytest.approx(pair) for pair in expected[place : place + targets]]
        place += targets


LORA = TTTConfig(method="lora", lr=0.05, chunk_tokens=4, lora_rank=2, batch_seqs=1, lora_queue="upstream")


@pytest.mark.slow
def test_hints_of_documents_that_are_scored_later_are_found() -> None:
    """Tables in the order of the text and documents in that of a queue are no factorisation (PR #2135)."""
    scoring = EvalConfig(documents=True, ttt=LORA, tilt=ALWAYS)
    probes = (13, 45, 61)
    assert breaches(scoring, probes) == {"standard": [], "ttt": []}
    found = breaches(dataclasses.replace(scoring, tilt=dataclasses.replace(ALWAYS, order="stream")), probes)
    assert found["standard"] == [] and any("changes an earlier score" in sentence for sentence in found["ttt"])


@pytest.mark.slow
def test_the_published_order_is_void_but_under_the_rules_of_the_frontier() -> None:
    cfg = compose(
        [
            *("scale=laptop", "model=4l", "model.model_dim=32", "launch.device=cpu", "eval=ttt_lora"),
            *("eval.documents=true", "eval.tilt.method=ngram", "eval.tilt.order=stream"),
        ]
    )
    assert any("changes an earlier score" in breach for breach in scoring_breaches(cfg))
    cfg.rules.name = "frontier"
    assert scoring_breaches(cfg) == []


def test_factors_learn_from_nats_without_the_tilt() -> None:
    """Tilted scores of test-time training are the tilt of those without it, position by position."""
    model, tokens = small_model(), small_tokens(90)
    recipe = TTTRecipe(lr=0.05, chunk_tokens=4, batch_seqs=1, seq_len=SEQ_LEN)
    found = {}
    for name in ("plain", "tilted"):
        observed = Observed()
        others = (TABLES.of(tokens[:-1], tokens[1:]), Ranks(), observed)
        tilted = TiltedTally(NgramTilt(ALWAYS), False, tokens, *others)
        tally = Tally(tokens, *others) if name == "plain" else tilted
        score = LoraScoring(model, tally, LORA, recipe, 7).score()
        assert ("n-gram tilt" in score.how) == (name == "tilted")
        found[name] = observed.per_target(90)
    hints = tilted.predictions.hints
    assert hints is not None
    without = hints == NO_HINT
    assert without.any() and found["tilted"][without] == pytest.approx(found["plain"][without], rel=1e-5)
    beta = tilted.predictions.strengths
    hit = (hints == tokens[1:]) & ~without
    p = np.exp(-found["plain"])
    expected = found["plain"] + np.log1p(p * np.expm1(beta)) - beta
    assert hit.any() and found["tilted"][hit] == pytest.approx(expected[hit], rel=1e-4)


def test_the_tilt_is_that_of_the_record() -> None:
    """p = 0.3 and beta = 1.5: Z = 2.04451, p' = 0.6576; a hit gains 0.785 nats, and a miss loses 0.715."""
    nats = torch.tensor([-math.log(0.3), 2.0])
    kept = tilt.kept_beside_hint(-torch.log(torch.tensor([0.3, 0.3])), torch.tensor([1.5, 1.5]))
    tilted = tilt.mixed(nats, torch.tensor([1.0, 0.0]), kept)
    assert torch.exp(-tilted[0]).item() == pytest.approx(0.6576, abs=5e-5)
    assert (tilted - nats).tolist() == pytest.approx([-0.785, math.log(2.04451)], abs=5e-4)


@given(st.floats(1e-6, 1 - 1e-6), st.floats(1e-6, 1.0), st.floats(0.0, 6.0))
def test_the_mixture_with_a_hint_is_the_tilt(p: float, p_hint: float, beta: float) -> None:
    """-log(p/Z + 1 - 1/Z) = nats + log Z - β on the hint, and nats + log Z elsewhere."""
    nats, hint_nats, strength = (
        torch.tensor([x], dtype=torch.float64) for x in (-math.log(p), -math.log(p_hint), beta)
    )
    for is_hint, of_hint in ((0.0, hint_nats), (1.0, nats)):
        log_z = math.log(1 + math.exp(-of_hint.item()) * math.expm1(beta))
        found = tilt.mixed(nats, torch.full_like(nats, is_hint), tilt.kept_beside_hint(of_hint, strength))
        assert found.item() == pytest.approx(nats.item() + log_z - beta * is_hint, rel=1e-9, abs=1e-12)


@given(
    st.lists(st.floats(0.01, 1.0), min_size=3, max_size=8),
    st.integers(0, 7),
    st.floats(0.0, 6.0),
    st.sampled_from([0.5, 1.0, 2.0]),
)
def test_a_strength_by_confidence_is_the_slow_definition_and_sums_to_one(
    weights: list[float], hint: int, beta: float, gamma: float
) -> None:
    """PR #2129: β·(1 - p(h))^γ, for every token as the target."""
    p, hint = np.array(weights) / sum(weights), hint % len(weights)
    strength = beta * (1 - p[hint]) ** gamma
    expected = p * np.exp(strength * (np.arange(p.size) == hint))
    expected /= expected.sum()
    text = [0, 1, *range(p.size)]
    tally = tally_of(text, np.full(p.size, hint), beta, confidence=gamma)
    nats = torch.from_numpy(np.stack((-np.log(p), np.full(p.size, -np.log(p[hint])))))[:, None]
    found = np.exp(-tally.scores(batch_of(np.arange(p.size)), nats).numpy())[0]
    assert found.sum() == pytest.approx(1, abs=1e-9) and found == pytest.approx(expected, rel=1e-5, abs=1e-9)


def tally_of(text: list[int], hints: np.ndarray, beta: float, **settings: float) -> TiltedTally:
    """Return a tally whose hints are given, and the hits of the targets 0, 1, …"""
    how = TiltConfig(method="ngram", strength="constant", beta=beta, **settings)  # type: ignore[arg-type]
    tokens = np.array(text, np.uint16)
    tally = TiltedTally(NgramTilt(how), False, tokens, np.ones(tokens.size - 1, np.int16), Ranks())
    hits = (hints == np.arange(hints.size)).astype(np.float64)
    tally.predictions = Predictions(hits, np.full(hints.size, beta), hints)
    return tally


def batch_of(indices: np.ndarray) -> Batch:
    rows = indices[None]
    return Batch(rows, rows, rows, rows, np.full(rows.shape, True))


@given(st.floats(0.01, 2.0), st.randoms(use_true_random=False))
def test_a_hedge_is_the_slow_definition(rate: float, random: Random) -> None:
    """PR #2050: weights softmax(-η·nats so far) in each document, renewed after each chunk."""
    chunks, width, beta = 4, 3, 2.0
    n = chunks * width
    p, p_hint = ([random.uniform(0.05, 0.9) for _ in range(n)] for _ in range(2))
    hits = [random.random() < 0.5 for _ in range(n)]
    p_hint = [a if hit else min(b, 0.99 - a) for a, b, hit in zip(p, p_hint, hits, strict=True)]
    p_hint = [max(b, 0.01) for b in p_hint]
    tally = tally_of([1, *[5] * n], np.where(hits, np.arange(n), -2), beta, hedge=rate)
    tally.queued = np.array([[0, n]])
    so_far, expected, found = [0.0] * len(HEDGED), [], []
    for chunk in range(chunks):
        own = range(chunk * width, (chunk + 1) * width)
        law = [math.exp(-rate * (total - min(so_far))) for total in so_far]
        experts = [
            [p[i] * (math.exp(m * beta) if hits[i] else 1) / (1 + p_hint[i] * math.expm1(m * beta)) for i in own]
            for m in HEDGED
        ]
        expected += [
            -math.log(sum(w * e[j] for w, e in zip(law, experts, strict=True)) / sum(law)) for j in range(width)
        ]
        so_far = [t - sum(map(math.log, e)) for t, e in zip(so_far, experts, strict=True)]
        nats = -torch.log(torch.tensor([[p[i] for i in own], [p_hint[i] for i in own]], dtype=torch.float64))
        found += tally.scores(batch_of(np.array(own)), nats[:, None])[0].tolist()
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("form", [{"confidence": 1.0}, {"hedge": 0.35}])
def test_strengths_by_confidence_and_by_hedge_are_distributions_of_the_past(form: dict[str, float]) -> None:
    scoring = EvalConfig(documents=True, ttt=LORA, tilt=dataclasses.replace(ALWAYS, **form))  # type: ignore[arg-type]
    assert breaches(scoring, (13, 61)) == {"standard": [], "ttt": []}


def test_tilted_windows_pass() -> None:
    assert breaches(TILTED, PROBE) == {"standard": [], "sliding": []}


def hints_that_know_the_target(tokens: np.ndarray, settings: TiltConfig) -> Hints:
    """Tables that hold the target already."""
    later = find_hints(np.append(tokens, tokens[-1:]), settings)
    known = np.where(later.tokens[1:] == NO_HINT, NO_HINT, tokens[1:].astype(np.int64))
    return Hints(known, later.shares[1:])


def hints_gated_by_the_target(tokens: np.ndarray, settings: TiltConfig) -> Hints:
    """The gate of the public experts within words: no hint where the target begins a word."""
    hints = find_hints(tokens, settings)
    return Hints(hints.tokens, np.where(tokens[1:] % 2 == 0, 0, hints.shares).astype(np.float32))


def hints_under_a_key_with_the_target(tokens: np.ndarray, settings: TiltConfig) -> Hints:
    """The caches of PR #779: a look-up of context and target together, filled with earlier pairs only."""
    found, seen = np.full(tokens.size - 1, NO_HINT, dtype=np.int64), set[tuple[int, int]]()
    for i, pair in enumerate(itertools.pairwise(tokens.tolist())):
        found[i] = pair[1] if pair in seen else NO_HINT
        seen.add(pair)
    return Hints(found, (found != NO_HINT).astype(np.float32))


def not_normalised(nats: Tensor, shares: Tensor, log_kept: Tensor) -> Tensor:
    return -torch.log(torch.exp(-nats) - torch.expm1(log_kept) * shares)


@pytest.mark.parametrize(
    ("name", "form", "total"),
    [
        ("tilt.find_hints", hints_that_know_the_target, "2.0"),
        ("tilt.find_hints", hints_under_a_key_with_the_target, "1.4"),
        ("tilt.find_hints", hints_gated_by_the_target, "0.99"),
        ("tilt.mixed", not_normalised, "1.004"),
    ],
)
def test_illegal_forms_are_found(name: str, form: object, total: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums are those of the table in docs/legality.md."""
    monkeypatch.setattr(f"golf.training.scoring.{name}", form)
    found = breaches(dataclasses.replace(TILTED), PROBE)
    (sentence,) = found["sliding"]
    assert found["standard"] == [] and sentence.startswith(f"the probabilities of target 29 sum to {total}")
