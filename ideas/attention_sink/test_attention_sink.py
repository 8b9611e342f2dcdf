"""The attention against a loop over heads and tokens in float64; no output sees a later token or another document."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import golf
from golf.training.model.documents import across_documents
from golf.training.model.gpt import GPT
from golf.training.model.layers import Context
from ideas.attention_sink.attention_sink import attend_beside_sink

SMALL = ["model=4l", "scale=laptop", "model.model_dim=32", "model.num_heads=4", "model.num_kv_heads=2"]
BOS = 1


def filled(*chosen: str) -> GPT:
    cfg = golf.compose([*SMALL, "model.compute_dtype=fp32", "tech=[attention_sink]", *chosen])
    model = golf.build_model(cfg).double()
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.5, generator=generator)
    return model


def slow(q: Tensor, k: Tensor, v: Tensor, sinks: list[float]) -> Tensor:
    """Return o·σ(LSE − s) of one row, head by head and token by token."""
    out = torch.empty_like(q)
    for head, sink in enumerate(sinks):
        shared = head // (q.size(1) // k.size(1))
        for t in range(q.size(0)):
            scores = [
                sum(a * b for a, b in zip(q[t, head].tolist(), k[j, shared].tolist(), strict=True))
                for j in range(t + 1)
            ]
            powers = [math.exp(score / math.sqrt(q.size(2))) for score in scores]
            plain = sum(p * v[j, shared] for j, p in enumerate(powers)) / sum(powers)
            out[t, head] = plain / (1 + math.exp(sink - math.log(sum(powers))))
    return out


@torch.no_grad()
def test_it_is_the_plain_output_times_the_sigmoid() -> None:
    attn = filled().blocks[1].attn
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, 6, heads, 8, dtype=torch.float64) for heads in (4, 2, 2))
    nothing = torch.empty(0)
    found = attend_beside_sink(attn, q, k, v, Context(nothing, nothing, nothing, nothing, {}, ()))
    for row in range(2):
        torch.testing.assert_close(found[row], slow(q[row], k[row], v[row], attn.sink.tolist()))


@torch.no_grad()
def test_a_sink_of_nothing_is_the_plain_model_and_one_at_zero_is_not() -> None:
    model = filled()
    plain = golf.build_model(golf.compose([*SMALL, "model.compute_dtype=fp32"])).double()
    plain.load_state_dict({name: t for name, t in model.state_dict().items() if not name.endswith(".sink")})
    ids, found = torch.arange(2, 14)[None], {}
    for start in (-1e3, 0.0):
        for block in model.blocks:
            block.attn.sink.fill_(start)
        found[start] = model.logits(ids)
    torch.testing.assert_close(found[-1e3], plain.logits(ids))
    assert not torch.allclose(found[0.0], found[-1e3])


def test_sinks_start_at_zero_in_every_layer_and_learn() -> None:
    model = golf.build_model(golf.compose([*SMALL, "tech=[attention_sink]"]))
    assert [block.attn.sink.tolist() for block in model.blocks] == [[0.0] * 4] * len(model.blocks)
    model, ids = filled(), torch.arange(2, 14)[None]
    model(ids[:, :-1], ids[:, 1:]).backward()
    assert all(block.attn.sink.grad.abs().min() > 0 for block in model.blocks)


@torch.no_grad()
def test_a_later_token_changes_no_earlier_output() -> None:
    model = filled()
    ids = torch.randint(0, 1024, (1, 12), generator=torch.Generator().manual_seed(0))
    changed = ids.clone()
    changed[0, 8] = (changed[0, 8] + 1) % 1024
    before, after = model.logits(ids), model.logits(changed)
    assert torch.equal(before[:, :8], after[:, :8])
    assert not torch.equal(before[:, 8:], after[:, 8:])


@torch.no_grad()
def test_within_documents_each_is_as_if_it_were_alone() -> None:
    model, alone = filled("model.within_documents=true", "eval.documents=true"), filled()
    ids = torch.randint(2, 1024, (2, 11), generator=torch.Generator().manual_seed(0))
    ids[0, 0] = ids[0, 4] = ids[1, 0] = ids[1, 7] = BOS
    found = model.logits(ids)
    for row, start, end in [(0, 0, 4), (0, 4, 11), (1, 0, 7), (1, 7, 11)]:
        torch.testing.assert_close(found[row, start:end], alone.logits(ids[row : row + 1, start:end])[0])


@torch.no_grad()
@pytest.mark.parametrize("within", ["true", "false"])
def test_low_rank_test_time_training_keeps_the_sinks(within: str) -> None:
    model = filled(f"model.within_documents={within}", f"eval.documents={within}")
    ids = torch.randint(2, 1024, (2, 13), generator=torch.Generator().manual_seed(2))
    ids[:, 0] = BOS
    expected = model.token_losses(ids[:, :-1], ids[:, 1:])
    with across_documents(model):
        torch.testing.assert_close(model.token_losses(ids[:, :-1], ids[:, 1:]), expected)
    for block in model.blocks:
        block.attn.sink.fill_(-50.0)
    assert (model.token_losses(ids[:, :-1], ids[:, 1:]) - expected).abs().max() > 1e-3
