"""The spans against dense masks in float64; documents, later tokens, hybrids, costs, scores and the exported script."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import golf
from golf.lab.proofs.run_proofs import RandomPasses
from golf.lab.proofs.scoring_proofs import document_leaks
from golf.submission.rehearsal import rehearse
from golf.submission.script.bundle import Bundle
from golf.training.data.dataset import Dataset
from golf.training.model.attention import attend_to_all
from golf.training.model.documents import PIECES, piece_starts
from golf.training.model.gpt import GPT
from golf.training.model.layers import Context
from golf.training.ranks import Ranks
from golf.training.scoring.document_queue import list_documents
from golf.training.scoring.forward import compiled_losses_at
from golf.training.scoring.scorer import Scorer
from golf.training.scoring.sliding import score_sliding
from ideas.window_sink import window_sink
from ideas.window_sink.window_sink import WindowSink, attend_in_window
from tests.support import compose, inert_techniques, refusal
from tests.training.scoring.small import SEQ_LEN, Observed, small_tally, small_tokens
from tests.training.scoring.test_sliding import one_by_one
from tests.training.techniques.small import small_model

SMALL = ["model=4l", "scale=laptop", "model.model_dim=32", "model.num_heads=4", "model.num_kv_heads=2"]
FLOAT32 = ["model.compute_dtype=fp32", "optim.muon_dtype=fp32", "eval.dtype=fp32"]
DOCUMENTS = ["model.within_documents=true", "eval.documents=true"]
BOS = 1


def chosen(window: int, sinks: int, layers: str = "null") -> list[str]:
    return ["tech=[window_sink]", f"tech.window_sink={{window:{window},sinks:{sinks},layers:{layers}}}"]


def filled(window: int, sinks: int, *more: str) -> GPT:
    cfg = golf.compose([*SMALL, "model.compute_dtype=fp32", *chosen(window, sinks), *more])
    model = golf.build_model(cfg).double()
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.5, generator=generator)
    return model


def context_of(ids: Tensor, *, within: bool, longest: int = 1000) -> Context:
    nothing = torch.empty(0)
    shared = {PIECES: piece_starts(ids, longest)} if within else {}
    return Context(ids, nothing, nothing, nothing, shared, ())


def slow(q: Tensor, k: Tensor, v: Tensor, begins: list[int], window: int, sinks: int) -> Tensor:
    """Return the output of one row by a dense mask; `begins` is where each token's document begins in the row."""
    tokens = len(begins)
    seen = torch.zeros(tokens, tokens, dtype=torch.bool)
    for t, begin in enumerate(begins):
        for j in range(begin, t + 1):
            seen[t, j] = t - j < window or j - begin < sinks
    k, v = (part.repeat_interleave(q.size(1) // part.size(1), 1) for part in (k, v))
    scores = torch.einsum("thd,shd->hts", q, k) / q.size(-1) ** 0.5
    return torch.einsum("hts,shd->thd", scores.masked_fill(~seen, -1e300).softmax(-1), v)


@torch.no_grad()
@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 2),
    st.integers(1, 30),
    st.integers(1, 12),
    st.integers(0, 5),
    st.booleans(),
    st.integers(3, 40),
    st.integers(0, 10**6),
)
def test_spans_are_the_dense_mask(
    rows: int, tokens: int, window: int, sinks: int, within: bool, longest: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.where(torch.rand(rows, tokens, generator=generator) < 0.15, BOS, 5)
    q, k, v = (torch.randn(rows, tokens, h, 4, dtype=torch.float64, generator=generator) for h in (4, 2, 2))
    attn: Any = None
    context = context_of(ids, within=within, longest=longest)
    found = attend_in_window(attn, q, k, v, context, window=window, sinks=sinks)
    for row in range(rows):
        begins, begin = [], 0
        for t in range(tokens):
            if within and (ids[row, t] == BOS or t - begin == longest):
                begin = t
            begins.append(begin)
        expected = slow(q[row], k[row], v[row], begins, window, sinks)
        torch.testing.assert_close(found[row], expected, rtol=1e-12, atol=1e-12)


def test_bf16_and_gradients_are_those_of_the_dense_mask() -> None:
    torch.manual_seed(0)
    parts = [torch.randn(1, 21, h, 8, requires_grad=True) for h in (4, 2, 2)]
    q, k, v = (part.to(torch.bfloat16) for part in parts)
    attn: Any = None
    found = attend_in_window(attn, q, k, v, context_of(torch.full((1, 21), 5), within=False), window=4, sinks=2)
    assert found.dtype == torch.bfloat16
    exactly = [part[0].double() for part in parts]
    expected = slow(exactly[0], exactly[1], exactly[2], [0] * 21, window=4, sinks=2)
    assert (found[0] - expected).norm() <= 2e-2 * expected.norm()
    weights = torch.randn(found.shape)
    gradients = torch.autograd.grad((found * weights).sum(), parts)
    exact = torch.autograd.grad((expected * weights[0]).sum(), parts)
    assert all((a - b).norm() <= 3e-2 * b.norm() for a, b in zip(gradients, exact, strict=True))


@torch.no_grad()
def test_a_window_over_the_whole_row_is_the_plain_model_and_a_shorter_one_is_not() -> None:
    plain = golf.build_model(golf.compose([*SMALL, "model.compute_dtype=fp32"])).double()
    model = filled(3, 1)
    plain.load_state_dict(model.state_dict())
    ids = torch.arange(2, 14)[None]
    assert (filled(12, 0).logits(ids) - plain.logits(ids)).abs().max() < 1e-9
    found, expected = model.logits(ids), plain.logits(ids)
    # The first layer's window and sink hold the first four tokens, and no later layer reads beyond them.
    torch.testing.assert_close(found[:, :4], expected[:, :4])
    assert ((found - expected)[:, 4:].abs().amax(-1) > 1e-3).all()


@torch.no_grad()
def test_a_later_token_changes_no_earlier_output_and_a_prefix_is_as_alone() -> None:
    model = filled(5, 2)
    ids = torch.randint(0, 1024, (1, 33), generator=torch.Generator().manual_seed(0))
    ids[ids == BOS] = 2
    changed = ids.clone()
    changed[0, 21] = 2 + changed[0, 21] % 1000
    before, after = model.logits(ids), model.logits(changed)
    assert torch.equal(before[:, :21], after[:, :21]) and not torch.equal(before[:, 21:], after[:, 21:])
    for length in (1, 5, 6, 20, 32):
        torch.testing.assert_close(model.logits(ids[:, :length]), before[:, :length], rtol=0, atol=1e-10)


@torch.no_grad()
def test_within_documents_each_is_as_if_it_were_alone() -> None:
    model, alone = filled(3, 2, *DOCUMENTS), filled(3, 2)
    ids = torch.randint(2, 1024, (2, 30), generator=torch.Generator().manual_seed(0))
    ids[0, 0] = ids[0, 13] = ids[0, 16] = ids[1, 0] = ids[1, 20] = BOS
    found = model.logits(ids)
    for row, start, end in [(0, 0, 13), (0, 13, 16), (0, 16, 30), (1, 0, 20), (1, 20, 30)]:
        torch.testing.assert_close(found[row, start:end], alone.logits(ids[row : row + 1, start:end])[0])


@torch.no_grad()
@pytest.mark.parametrize("within", ["true", "false"])
def test_scores_by_document_have_the_window(within: str) -> None:
    documents = [f"model.within_documents={within}", "eval.documents=true", "data.train_seq_len=16"]
    batches = ["data.train_batch_tokens=128", "data.micro_batches=1", "eval.val_batch_tokens=64"]
    cfg = golf.compose([*SMALL, *FLOAT32, *chosen(3, 2), *documents, *batches])
    tokens, seen = small_tokens(120), Observed()
    dataset = Dataset([], [], tokens, np.ones(120, np.int16), "")
    model = golf.build_model(dataclasses.replace(cfg, model=dataclasses.replace(cfg.model, within_documents=False)))
    for parameter in model.parameters():
        parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    Scorer(cfg, dataset, Ranks())(model.scored_weights(), observe=seen)
    for start, targets in list_documents(tokens).tolist():
        for piece in range(start, start + targets, 16):
            end = min(piece + 16, start + targets)
            row = torch.from_numpy(tokens[piece : end + 1].astype(np.int64))[None]
            alone = model.token_losses(row[:, :-1], row[:, 1:])[0]
            torch.testing.assert_close(torch.from_numpy(seen.per_target(120)[piece:end]).float(), alone)


def test_chosen_layers_have_a_window_and_the_others_see_all() -> None:
    cfg = compose([*SMALL, "model.compute_dtype=fp32", *chosen(3, 1, "[0,-1]")])
    cores: list[Any] = [block.attn.core for block in golf.build_model(cfg).blocks]
    assert [getattr(core, "func", core) for core in cores] == [
        attend_in_window,
        attend_to_all,
        attend_to_all,
        attend_in_window,
    ]
    assert all(cores[layer].keywords == {"window": 3, "sinks": 1} for layer in (0, -1))


def test_the_run_proves_that_it_acts_beyond_the_usual_length_of_a_proof() -> None:
    cfg = compose([*SMALL, "model.compute_dtype=fp32", "tech=[window_sink]", *DOCUMENTS])
    assert cfg.tech["window_sink"].window == cfg.data.train_seq_len // 4 == 64
    assert RandomPasses(cfg).ids.size(1) > 2 * 68 and inert_techniques(cfg) == [] and document_leaks(cfg) == []


def test_a_window_that_leaks_into_other_documents_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = compose([*SMALL, "model.compute_dtype=fp32", *chosen(40, 2), *DOCUMENTS])
    whole_rows = lambda batch, tokens, context, device: torch.arange(batch * tokens) // tokens * tokens  # noqa: E731
    monkeypatch.setattr(window_sink, "starts_in_batch", whole_rows)
    (sentence,) = document_leaks(cfg)
    assert "output in another document" in sentence


def test_operations_are_those_of_spans() -> None:
    q, k, v = (torch.randn(1, 256, h, 8) for h in (4, 2, 2))
    attn: Any = None
    with FlopCounterMode(display=False) as counter:
        attend_in_window(attn, q, k, v, context_of(torch.full((1, 256), 5), within=False), window=16, sinks=4)
    assert counter.get_total_flops() == 256 * 4 * (2 * 2 * 8 * (2 * 16 + 4))


@torch.no_grad()
@pytest.mark.parametrize("stride", [4, 16])
def test_sliding_windows_score_each_token_as_its_window_alone_does(stride: int) -> None:
    model = small_model(WindowSink(window=5, sinks=2, layers=[0]), layers=2).float()
    tokens, observed = small_tokens(50), Observed()
    tally = small_tally(tokens, observe=observed)
    score_sliding(compiled_losses_at(model, "off"), tally, seq_len=SEQ_LEN, stride=stride, batch_seqs=3)
    assert observed.per_target(50) == pytest.approx(one_by_one(model, tokens, stride), rel=1e-4)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ("layers:[4]", "names layer 4"),
        ("layers:[]", "at least one"),
        ("layers:[0,-4]", "different layers"),
        ("window:250,sinks:6", "are all of data.train_seq_len=256"),
    ],
)
def test_what_cannot_be_is_refused(values: str, sentence: str) -> None:
    assert sentence in refusal("scale=laptop", "model=4l", "tech=[window_sink]", f"tech.window_sink={{{values}}}")


@pytest.mark.slow
def test_the_exported_script_of_a_hybrid_trains_and_packs_as_the_framework_does(tmp_path: Path) -> None:
    cfg = compose([*SMALL, *FLOAT32, *chosen(20, 4, "[0,2]"), "launch.device=cpu", "launch.compile=off"])
    found = rehearse(cfg, Bundle(cfg).wrapped, Path(sys.executable), tmp_path, steps=4)
    assert found.losses > 4 and found.artifact_bytes > 1000
