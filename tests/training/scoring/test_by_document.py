"""Scores by document against documents scored one by one: every target once, on any number of ranks."""

import functools
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from golf.errors import GolfError
from golf.training.model.documents import separate_documents
from golf.training.model.gpt import GPT
from golf.training.scoring.forward import losses_at
from golf.training.scoring.sliding import document_windows, score_sliding_by_document
from golf.training.scoring.standard import piece_rows, score_by_document
from tests.training.scoring.small import SEQ_LEN, Observed, on_ranks, small_model, small_tally, small_tokens

TOKENS = small_tokens(211, seed=3)
BOUNDS = list(itertools.pairwise([*np.flatnonzero(TOKENS[:-1] == 1).tolist(), TOKENS.size - 1]))


def model() -> GPT:
    made = small_model()
    separate_documents(made, SEQ_LEN)
    return made


@functools.cache
@torch.no_grad()
def one_by_one(stride: int | None) -> np.ndarray:
    """Nats of every target, each document and each piece or window by itself, through the plain model."""
    plain, nats = small_model(), np.full(TOKENS.size - 1, np.nan)
    for begin, end in BOUNDS:
        for target in range(begin, end):
            if stride is None:
                start = begin + (target - begin) // SEQ_LEN * SEQ_LEN
            else:
                beyond = max(target - begin - SEQ_LEN + 1, 0)
                start = begin + -(-beyond // stride) * stride
            ids = torch.from_numpy(TOKENS[start : target + 2].astype(np.int64))[None]
            nats[target] = plain.token_losses(ids[:, :-1], ids[:, 1:])[0, -1]
    return nats


@pytest.mark.parametrize("row_tokens", [SEQ_LEN, 50])
@pytest.mark.parametrize("world_size", [1, 3])
def test_standard_score_is_that_of_the_pieces(row_tokens: int, world_size: int) -> None:
    observed, scored = Observed(), model()
    with torch.no_grad():
        found = on_ranks(
            world_size,
            lambda ranks: score_by_document(
                scored.token_losses, small_tally(TOKENS, ranks, observed), seq_len=SEQ_LEN, row_tokens=row_tokens
            ),
        )
    expected = one_by_one(None)
    np.testing.assert_allclose(observed.per_target(TOKENS.size - 1), expected, atol=1e-5)
    assert {score.tokens for score in found} == {TOKENS.size - 1} and found[0].how == "standard by document"
    assert found[0].val_loss == pytest.approx(expected.mean(), abs=1e-5)


@pytest.mark.parametrize("stride", [1, 5, SEQ_LEN - 1])
@pytest.mark.parametrize("world_size", [1, 2])
def test_sliding_score_is_that_of_the_windows(stride: int, world_size: int) -> None:
    observed, scored = Observed(), model()
    found = on_ranks(
        world_size,
        lambda ranks: score_sliding_by_document(
            lambda *batch: losses_at(scored, *batch),
            small_tally(TOKENS, ranks, observed),
            seq_len=SEQ_LEN,
            stride=stride,
            batch_seqs=4,
        ),
    )
    np.testing.assert_allclose(observed.per_target(TOKENS.size - 1), one_by_one(stride), atol=1e-5)
    assert found[0].tokens == TOKENS.size - 1 and found[0].how == f"sliding window by document, stride {stride}"


@given(targets=st.integers(1, 300), seed=st.integers(0, 99), row_tokens=st.integers(SEQ_LEN, 200))
def test_rows_and_windows_hold_every_target_once(targets: int, seed: int, row_tokens: int) -> None:
    tokens = small_tokens(targets, seed)
    rows = piece_rows(tokens, seq_len=SEQ_LEN, row_tokens=row_tokens)
    assert rows[0, 0] == 0 and rows[-1, 1] == targets and np.array_equal(rows[1:, 0], rows[:-1, 1])
    assert (rows[:, 1] - rows[:, 0] <= row_tokens).all()
    windows = document_windows(tokens, SEQ_LEN, 5)
    scored = np.concatenate([np.arange(first, end) for _, first, end in windows])
    assert np.array_equal(np.sort(scored), np.arange(targets))
    for start, _, end in windows.tolist():
        assert not (tokens[start + 1 : end] == 1).any()


def test_a_row_without_room_for_a_piece_is_refused() -> None:
    """It once went on for ever, in the rehearsal of windows that are longer than training sequences."""
    with pytest.raises(GolfError, match=r"raise eval\.val_batch_tokens"):
        piece_rows(small_tokens(2 * SEQ_LEN, 0), seq_len=SEQ_LEN, row_tokens=SEQ_LEN - 1)
