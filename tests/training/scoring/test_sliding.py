"""The sliding score against one window after the other, whatever the batches, ranks and compilers."""

import itertools
import math
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from golf.bits import STANDARD, Score
from golf.training.model.gpt import GPT
from golf.training.ranks import Ranks
from golf.training.scoring.forward import compiled_losses_at
from golf.training.scoring.sliding import score_sliding
from golf.training.scoring.standard import score_standard
from tests.training.scoring.small import SEQ_LEN, Observed, on_ranks, small_model, small_tally, small_tokens

MODEL = small_model()
LOSSES_AT = compiled_losses_at(MODEL, "off")


def one_by_one(model: GPT, tokens: np.ndarray, stride: int) -> np.ndarray:
    """Nats of each target, from a window of its own: the last T tokens on the grid of starts that reach it first."""
    nats = []
    for i in range(tokens.size - 1):
        start = 0 if i < SEQ_LEN else stride * math.ceil((i + 1 - SEQ_LEN) / stride)
        ids = torch.from_numpy(tokens[start : i + 1].astype(np.int64))[None]
        with torch.no_grad():
            logits = model.logits(ids)[0, -1].double()
        nats.append(-torch.log_softmax(logits, 0)[int(tokens[i + 1])].item())
    return np.array(nats)


@pytest.mark.parametrize("stride", [1, 4, 7, 15, 16])
@pytest.mark.parametrize("targets", [1, 15, 16, 17, 50])
def test_equals_one_window_at_a_time(targets: int, stride: int) -> None:
    tokens, observed = small_tokens(targets), Observed()
    found = score_sliding(
        LOSSES_AT, small_tally(tokens, observe=observed), seq_len=SEQ_LEN, stride=stride, batch_seqs=3
    )
    expected = one_by_one(MODEL, tokens, stride)
    assert observed.per_target(targets) == pytest.approx(expected, rel=1e-4)
    byte_count = sum(y + (y % 2 == 0 and x >= 3) for x, y in itertools.pairwise(tokens.astype(int)))
    assert (found.tokens, found.bytes) == (targets, byte_count)
    assert found.val_loss == pytest.approx(expected.mean(), rel=1e-5)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 90), st.integers(1, 16), st.integers(1, 5), st.integers(1, 3))
def test_ranks_and_batches_change_nothing(targets: int, stride: int, batch_seqs: int, world_size: int) -> None:
    tokens = small_tokens(targets)

    def work(ranks: Ranks) -> Score:
        return score_sliding(
            LOSSES_AT, small_tally(tokens, ranks), seq_len=SEQ_LEN, stride=stride, batch_seqs=batch_seqs
        )

    (alone,) = on_ranks(1, work)
    for found in on_ranks(world_size, work):
        assert (found.tokens, found.bytes) == (targets, alone.bytes)
        assert found.val_loss == pytest.approx(alone.val_loss, rel=1e-6)


def test_stride_of_the_whole_sequence_is_the_standard_score() -> None:
    tokens = small_tokens(5 * SEQ_LEN)
    with torch.no_grad():
        sliding = score_sliding(LOSSES_AT, small_tally(tokens), seq_len=SEQ_LEN, stride=SEQ_LEN, batch_seqs=2)
        standard = score_standard(MODEL.token_losses, small_tally(tokens), seq_len=SEQ_LEN, batch_seqs=2)
    assert sliding.val_bpb == pytest.approx(standard.val_bpb, rel=1e-6)
    assert standard.how == STANDARD != sliding.how


def test_losses_are_summed_beyond_float32() -> None:
    """2²⁴ + 1 is not a float32: a sum of large and small losses keeps the small ones."""

    def losses_at(ids: torch.Tensor, positions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.arange(targets.numel()).view(targets.shape) == 0, 2.0**24, 1.0)

    found = score_sliding(losses_at, small_tally(small_tokens(64)), seq_len=64, stride=64, batch_seqs=1)
    assert found.val_loss * 64 == 2.0**24 + 63


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile on a CPU needs g++")
def test_compiled_in_one_graph_of_one_shape() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled, eager = (
        score_sliding(losses_at, small_tally(small_tokens(100)), seq_len=SEQ_LEN, stride=4, batch_seqs=8)
        for losses_at in (compiled_losses_at(MODEL, "full"), LOSSES_AT)
    )
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert compiled.val_loss == pytest.approx(eager.val_loss, rel=1e-5)
