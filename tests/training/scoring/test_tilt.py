"""The n-gram tilt: hints against a slow definition, a proper distribution, and the forms that are not legal."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from golf.settings.scoring_config import EvalConfig, TiltConfig
from golf.training.scoring import tilt
from golf.training.scoring.tilt import NO_HINT, Hints, find_hints
from tests.training.scoring.test_legality import breaches

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


def test_the_tilt_is_that_of_the_record() -> None:
    """p = 0.3 and beta = 1.5: Z = 2.04451, p' = 0.6576; a hit gains 0.785 nats, and a miss loses 0.715."""
    nats = torch.tensor([-math.log(0.3), 2.0])
    tilted = tilt.tilt(
        nats, -torch.log(torch.tensor([0.3, 0.3])), torch.tensor([True, False]), torch.tensor([1.5, 1.5])
    )
    assert torch.exp(-tilted[0]).item() == pytest.approx(0.6576, abs=5e-5)
    assert (tilted - nats).tolist() == pytest.approx([-0.785, math.log(2.04451)], abs=5e-4)


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


def not_normalised(nats: Tensor, hint_nats: Tensor, is_hint: Tensor, strengths: Tensor) -> Tensor:
    return nats - strengths * is_hint


@pytest.mark.parametrize(
    ("name", "form", "total"),
    [
        ("find_hints", hints_that_know_the_target, "2.0"),
        ("find_hints", hints_under_a_key_with_the_target, "1.4"),
        ("find_hints", hints_gated_by_the_target, "0.99"),
        ("tilt", not_normalised, "1.004"),
    ],
)
def test_illegal_forms_are_found(name: str, form: object, total: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums are those of the table in docs/legality.md."""
    monkeypatch.setattr(tilt, name, form)
    found = breaches(dataclasses.replace(TILTED), PROBE)
    (sentence,) = found["sliding"]
    assert found["standard"] == [] and sentence.startswith(f"the probabilities of target 29 sum to {total}")
