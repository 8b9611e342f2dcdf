"""The maps against a loop over heads and tokens in float64; documents, later tokens, scores."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import golf
from golf.training.model.documents import across_documents
from golf.training.model.gpt import GPT
from golf.training.model.layers import Context
from golf.training.scoring.forward import compiled_losses_at
from golf.training.scoring.sliding import score_sliding
from ideas.differential_attention.differential_attention import (
    DifferentialAttention,
    base_share,
    second_half,
    share_of_second,
)
from tests.support import refusal
from tests.training.scoring.small import SEQ_LEN, Observed, small_tally, small_tokens
from tests.training.scoring.test_sliding import one_by_one
from tests.training.techniques.small import small_model

SMALL = ["model=4l", "scale=laptop", "model.model_dim=32", "model.num_heads=4", "model.num_kv_heads=2"]
FLOAT32 = ["model.compute_dtype=fp32", "optim.muon_dtype=fp32", "eval.dtype=fp32"]
DOCUMENTS = ["model.within_documents=true", "eval.documents=true"]
BOS = 1


def filled(*chosen: str) -> GPT:
    cfg = golf.compose([*SMALL, "model.compute_dtype=fp32", "tech=[differential_attention]", *chosen])
    model = golf.build_model(cfg).double()
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.5, generator=generator)
    return model


def context_of(turning: int) -> Context:
    nothing = torch.empty(0)
    return Context(nothing, nothing, torch.empty(1, 1, 1, turning // 2), nothing, {}, ())


def softmax_row(q: Tensor, keys: Tensor) -> Tensor:
    powers = [math.exp(sum(a * b for a, b in zip(q.tolist(), key, strict=True)) / math.sqrt(len(q))) for key in keys]
    return torch.tensor(powers, dtype=torch.float64) / sum(powers)


def slow(q: Tensor, k: Tensor, v: Tensor, halves: tuple[list[int], list[int]], share: float, base: float) -> Tensor:
    """Return the output of one row `[T, H, D]`, head by head and token by token, with the halves' own channels."""
    out = torch.empty_like(q)
    for head in range(q.size(1)):
        group = head // (q.size(1) // k.size(1))
        for t in range(q.size(0)):
            one, two = (softmax_row(q[t, head, half], k[: t + 1, group][:, half]) for half in halves)
            o = sum((one[j] - share * two[j]) * v[j, group] for j in range(t + 1))
            out[t, head] = (1 - base) * o / math.sqrt(float(o.square().mean()))
    return out


@torch.no_grad()
@pytest.mark.parametrize(
    ("turning", "halves"),
    [(8, ([0, 2, 4, 6], [1, 3, 5, 7])), (6, ([0, 2, 3, 5], [1, 4, 6, 7])), (2, ([0, 1, 2, 3], [4, 5, 6, 7]))],
)
def test_each_head_is_the_difference_of_two_maps(turning: int, halves: tuple[list[int], list[int]]) -> None:
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, 6, heads, 8, dtype=torch.float64) for heads in (4, 2, 2))
    for layer in (0, 3):
        attn: Any = filled().blocks[layer].attn
        q1, k1, q2, k2 = attn.differential.tolist()
        dots = [sum(a * b for a, b in zip(*pair, strict=True)) for pair in ((q1, k1), (q2, k2))]
        base = 0.8 - 0.6 * math.exp(-0.3 * layer)
        share = math.exp(dots[0]) - math.exp(dots[1]) + base
        found = attn.core(attn, q, k, v, context_of(turning))
        for row in range(2):
            torch.testing.assert_close(found[row], slow(q[row], k[row], v[row], halves, share, base))


@pytest.mark.parametrize("channels", [4, 8, 12, 28, 64])
def test_halves_are_halves_and_part_no_pair(channels: int) -> None:
    for turning in range(0, channels + 1, 2):
        second = second_half(channels, turning, torch.device("cpu")).tolist()
        assert sum(second) == channels // 2
        assert all(second[j] == second[j + turning // 2] for j in range(turning // 2))


@torch.no_grad()
def test_shifted_positions_leave_the_output_as_it_is() -> None:
    """Each half sees distances alone, which it would not if it held one channel of a turning pair."""
    model = filled()
    attn: Any = model.blocks[1].attn
    torch.manual_seed(2)
    x = torch.randn(1, 5, 32, dtype=torch.float64)
    tables = model.rotary.tables(12, like=x)
    found = []
    for begin in (0, 7):
        cos, sin = (table[:, begin : begin + 5] for table in tables)
        nothing = torch.empty(0)
        found.append(attn(x, Context(nothing, nothing, cos, sin, {}, ())))
    torch.testing.assert_close(found[0], found[1])


def test_at_the_start_the_share_is_near_that_of_the_layer() -> None:
    model = golf.build_model(golf.compose([*SMALL, "tech=[differential_attention]", "model.model_dim=512"]))
    assert [round(base_share(layer), 3) for layer in (0, 1, 8)] == [0.2, 0.356, 0.746]
    for layer, block in enumerate(model.blocks):
        vectors: Any = block.attn.differential.detach()
        assert vectors.shape == (4, 64) and 0.08 < vectors.std() < 0.12
        assert abs(float(share_of_second(vectors, base_share(layer))) - base_share(layer)) < 0.5


@torch.no_grad()
def test_a_later_token_changes_no_earlier_output_and_a_prefix_is_as_alone() -> None:
    model = filled()
    ids = torch.randint(0, 1024, (1, 12), generator=torch.Generator().manual_seed(0))
    changed = ids.clone()
    changed[0, 8] = (changed[0, 8] + 1) % 1024
    before, after = model.logits(ids), model.logits(changed)
    assert torch.equal(before[:, :8], after[:, :8])
    assert not torch.equal(before[:, 8:], after[:, 8:])
    torch.testing.assert_close(model.logits(ids[:, :5]), before[:, :5])


@torch.no_grad()
def test_within_documents_each_is_as_if_it_were_alone() -> None:
    model, alone = filled(*DOCUMENTS), filled()
    ids = torch.randint(2, 1024, (2, 11), generator=torch.Generator().manual_seed(0))
    ids[0, 0] = ids[0, 4] = ids[1, 0] = ids[1, 7] = BOS
    found = model.logits(ids)
    for row, start, end in [(0, 0, 4), (0, 4, 11), (1, 0, 7), (1, 7, 11)]:
        torch.testing.assert_close(found[row, start:end], alone.logits(ids[row : row + 1, start:end])[0])


@torch.no_grad()
@pytest.mark.parametrize("within", ["true", "false"])
def test_rows_of_one_document_are_scored_over_the_whole_row(within: str) -> None:
    model = filled(f"model.within_documents={within}", f"eval.documents={within}")
    ids = torch.randint(2, 1024, (2, 13), generator=torch.Generator().manual_seed(2))
    ids[:, 0] = BOS
    expected = model.token_losses(ids[:, :-1], ids[:, 1:])
    with across_documents(model):
        torch.testing.assert_close(model.token_losses(ids[:, :-1], ids[:, 1:]), expected)


def test_heads_that_cannot_be_halved_are_refused() -> None:
    chosen = ["model.model_dim=24", "model.num_heads=4", "model.num_kv_heads=2"]
    sentence = refusal("scale=laptop", "model=4l", *chosen, "tech=[differential_attention]")
    assert "halves each head's 6 channels" in sentence


@torch.no_grad()
def test_sliding_windows_score_each_token_as_its_window_alone_does() -> None:
    model, tokens, observed = small_model(DifferentialAttention(), layers=2).float(), small_tokens(50), Observed()
    tally = small_tally(tokens, observe=observed)
    score_sliding(compiled_losses_at(model, "off"), tally, seq_len=SEQ_LEN, stride=4, batch_seqs=3)
    assert observed.per_target(50) == pytest.approx(one_by_one(model, tokens, 4), rel=1e-4)
