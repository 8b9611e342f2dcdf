"""The sum over all tokens at every position, q against fresh counts in exact fractions, and what the proof refuses."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import golf
from golf.lab.proofs.legality import predictor_breaches
from golf.lab.proofs.scoring_proofs import improper_predictor
from golf.training.data.documents import train_tokenizer
from golf.training.scoring.predictor import predictor_of
from ideas.byte_ppm.byte_ppm import END, BytePPM, Spelling, special, spellings

# Single letters, prefixes of longer tokens, leaves, and a control token.
WORDS = ["a", "b", "c", " ", "ab", "abc", " a", " ab", "ca", "cab", "bb", "bbb", " cabs"]
TOKENS: list[Spelling] = [special(0), *(tuple(word.encode()) for word in WORDS)]
TEXT = np.random.default_rng(0).choice([0, 1, 2, 4, 5, 8, 11, 13], 201).astype(np.uint16)
SMALL = ["model=4l", "scale=laptop", "eval.stride=8", "launch.device=cpu", "data.tokenizer_path=nowhere.model"]


def law_of(predictor: BytePPM, history: np.ndarray) -> np.ndarray:
    _, probability = predictor.propose(history)
    return np.array([probability(token) for token in range(len(TOKENS))])


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99, 1.0])
def test_the_mixture_sums_to_one_over_all_tokens_at_every_position(share: float) -> None:
    predictor, random = BytePPM(TOKENS, 4, share, 0.5), np.random.default_rng(1)
    assert predictor_breaches(predictor, len(TOKENS), TEXT) == []
    predictor.reset()
    for i, token in enumerate(TEXT[:200].tolist()):
        predictor.see(token)
        model = random.dirichlet(np.full(len(TOKENS), 0.1))
        mixed = (1 - share) * model + share * law_of(predictor, TEXT[: i + 1])
        assert abs(mixed.sum() - 1) < 1e-9 and mixed.min() >= 0


def written_out(history: list[int], token: int, order: int) -> Fraction:
    """q of a token by counting in the whole text again for each of its events."""
    text: list[int] = []
    passed: list[tuple[list[int], Spelling, int]] = []  # text before a token, prefix, event
    for past in history:
        for n, event in enumerate((*TOKENS[past], END)):
            passed.append((list(text), TOKENS[past][:n], event))
        text += TOKENS[past]

    def blended(event: int, lists: list[list[int]], q: Fraction) -> Fraction:
        for seen in lists:
            if seen:
                q = (max(seen.count(event) - Fraction(1, 2), 0) + Fraction(1, 2) * len(set(seen)) * q) / len(seen)
        return q

    found = Fraction(1)
    for n, event in enumerate((*TOKENS[token], END)):
        prefix = TOKENS[token][:n]
        following = {t[n] for t in TOKENS if t[:n] == prefix and len(t) > n}
        if not following:
            continue
        end = Fraction(0)
        if prefix in TOKENS:
            lists = [
                [int(e == END) for before, p, e in passed if p == prefix and before[len(before) - m :] == text[-m:]]
                if m
                else [int(e == END) for _, p, e in passed if p == prefix]
                for m in range(min(order, len(text)) + 1)
            ]
            end = blended(1, lists, Fraction(1, 2))
        if event == END:
            return found * end
        now = text + list(prefix)
        lists = [
            [e for before, p, e in passed if e != END and (before + list(p))[-m:] == now[-m:]]
            if m
            else [e for _, _, e in passed if e != END]
            for m in range(min(order, len(now)) + 1)
        ]
        each = {b: blended(b, lists, Fraction(1, 257)) for b in following}
        found *= (1 - end) * each[event] / sum(each.values())
    return found


def test_probabilities_are_those_of_fresh_counts() -> None:
    predictor = BytePPM(TOKENS, 3, 0.1, 0.5)
    for i, token in enumerate(TEXT[:30].tolist()):
        predictor.see(token)
        if i % 6 == 5:
            expected = [float(written_out(TEXT[: i + 1].tolist(), asked, 3)) for asked in range(len(TOKENS))]
            np.testing.assert_allclose(law_of(predictor, TEXT[: i + 1]), expected, rtol=1e-9)


class WithoutEnds(BytePPM):
    """The product of the bytes, without the end: what both public forms are where the model has no share."""

    def law(self, prefix: Spelling) -> dict[int, float]:
        found = super().law(prefix)
        left = 1 - found.get(END, 0.0)
        return {event: 1.0 if event == END else q / left for event, q in found.items()}


def test_bytes_without_the_end_of_the_token_are_refused() -> None:
    (sentence,) = predictor_breaches(WithoutEnds(TOKENS, 4, 0.5, 0.5), len(TOKENS), TEXT)
    assert "they have to sum to 1" in sentence


def test_tokens_are_spelled_apart(tmp_path: Path) -> None:
    file = tmp_path / "t.model"
    file.write_bytes(train_tokenizer(["the cat sat on the mat, and the hat was that of a bat. " * 20], 300))
    found = spellings(file, 300)
    assert len(set(found)) == 300 and found[1] == special(1)
    assert tuple(b" the") in found and tuple(b"a") in found


@pytest.mark.slow
def test_the_proof_before_each_run_passes() -> None:
    assert improper_predictor(golf.compose([*SMALL, "tech=[byte_ppm]"])) == []


def test_settings_are_the_predictors() -> None:
    predictor = predictor_of(golf.compose([*SMALL, "tech=[byte_ppm]", "tech.byte_ppm.order=2"]))
    assert predictor.order == 2 and predictor.tokens[12] == tuple(b"12")


def test_text_as_bytes_is_refused() -> None:
    with pytest.raises(golf.GolfError, match="take token_ngram"):
        golf.compose(["tech=[byte_ppm]", "eval.stride=64", "data=pydocs_bytes"])
