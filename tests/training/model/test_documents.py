"""Attention within documents against a mask over the whole row, on every path; documents do not know each other."""

import copy
import dataclasses
import itertools
from types import ModuleType

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from golf.errors import GolfError
from golf.settings.config import ModelConfig
from golf.training.data.packed import document_starts, most_documents, most_pieces
from golf.training.model import documents
from golf.training.model.attention import attend_sdpa, variable_length_kernel
from golf.training.model.documents import (
    SCANNED,
    attend_in_spans,
    attend_one_by_one,
    cumulative_lengths,
    piece_starts,
    running,
    separate_documents,
    try_documents,
)
from golf.training.model.gpt import GPT
from tests import flash_stand_ins
from tests.flash_stand_ins import flash_attention_2, flash_attention_3, flash_attention_4, install, torch_varlen
from tests.training.scoring.small import VOCAB, small_model

PATHS = {
    "one by one": lambda q, k, v, starts, longest: attend_one_by_one(attend_sdpa, q, k, v, starts),
    "in spans": attend_in_spans,
}


def masked(q: Tensor, k: Tensor, v: Tensor, pieces: Tensor) -> Tensor:
    """Attention over the whole row with a mask of n² entries."""
    place = torch.arange(pieces.numel())
    seen = (pieces[:, None] == pieces) & (place[:, None] >= place)
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True).transpose(1, 2)


def random_ids(tokens: int, seed: int, rows: int = 1, one_in: int = 6) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, VOCAB, (rows, tokens), generator=generator)
    return torch.where(torch.rand(ids.shape, generator=generator) < 1 / one_in, 1, ids)


@given(tokens=st.integers(1, 40), longest=st.integers(1, 12), seed=st.integers(0, 99), rows=st.integers(1, 3))
def test_pieces_are_those_of_the_loader(tokens: int, longest: int, seed: int, rows: int) -> None:
    ids = random_ids(tokens, seed, rows)
    starts = piece_starts(ids, longest)
    expected = np.concatenate([document_starts(row.numpy(), longest)[:-1] + i * tokens for i, row in enumerate(ids)])
    assert np.array_equal(starts.unique(), expected)
    assert ((starts <= torch.arange(starts.numel())) & (starts > torch.arange(starts.numel()) - longest)).all()


@given(tokens=st.integers(1, 40), longest=st.integers(1, 12), seed=st.integers(0, 99))
def test_lengths_for_kernels_are_the_loaders_starts(tokens: int, longest: int, seed: int) -> None:
    ids = random_ids(tokens, seed)
    expected = document_starts(ids[0].numpy(), longest)
    most = expected.size - 1 + seed % 3
    found = cumulative_lengths(piece_starts(ids, longest), most)
    assert found.dtype == torch.int32 and found.tolist() == [*expected, *[tokens] * (most + 1 - expected.size)]


@given(values=st.lists(st.integers(0, 9), min_size=1, max_size=3 * SCANNED), seed=st.integers(0, 9))
def test_scans_in_blocks_are_scans_of_the_row(values: list[int], seed: int) -> None:
    row = torch.tensor(values).roll(seed)
    assert torch.equal(running(row, torch.cumsum, torch.add), row.cumsum(0))
    assert torch.equal(running(row, lambda t, dim: t.cummax(dim).values, torch.maximum), row.cummax(0).values)


@given(documents=st.lists(st.integers(1, 900), min_size=1, max_size=300), longest=st.sampled_from([64, 256, 2048]))
def test_rows_of_few_documents_fit_the_table(documents: list[int], longest: int) -> None:
    ids = np.full(sum(documents), 7)
    ids[np.cumsum([0, *documents[:-1]])] = 1
    fits = document_starts(ids, longest).size - 1 <= most_pieces(ids.size, longest)
    assert fits or len(documents) > most_documents(ids.size)
    # The rows of the records: 98,304 tokens, of which public runs have up to 192 pieces.
    assert most_pieces(98_304, 2048) == 432


@settings(max_examples=40)
@given(tokens=st.integers(1, 40), longest=st.integers(1, 12), seed=st.integers(0, 99), path=st.sampled_from([*PATHS]))
def test_every_path_is_the_masked_row(tokens: int, longest: int, seed: int, path: str) -> None:
    starts = piece_starts(random_ids(tokens, seed), longest)
    generator = torch.Generator().manual_seed(seed)
    shapes = [(1, tokens, heads, 8) for heads in (4, 2, 2)]
    q, k, v = inputs = [torch.randn(shape, generator=generator, requires_grad=True) for shape in shapes]
    found, expected = PATHS[path](q, k, v, starts, longest), masked(q, k, v, starts)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    weights = torch.randn(expected.shape, generator=generator)
    for ours, theirs in zip(
        *(torch.autograd.grad((y * weights).sum(), inputs) for y in (found, expected)), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def separated(longest: int = 16, seed: int = 0) -> GPT:
    model = small_model(seed)
    separate_documents(model, longest)
    return model


def test_a_packed_row_is_its_documents_one_by_one() -> None:
    """Loss and gradients of a row are those of its pieces, each run through the plain model by itself."""
    packed, plain = separated(longest=8), small_model()
    ids = random_ids(61, seed=3, one_in=9)
    inputs, targets = ids[:, :-1], ids[:, 1:]
    losses = packed.token_losses(inputs, targets)
    starts = document_starts(inputs[0].numpy(), 8)
    parts = [slice(a, b) for a, b in itertools.pairwise(starts)]
    alone = torch.cat([plain.token_losses(inputs[:, part], targets[:, part]) for part in parts], dim=1)
    torch.testing.assert_close(losses, alone, atol=1e-5, rtol=1e-5)
    losses.mean().backward()
    alone.mean().backward()
    for (name, p), q in zip(packed.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, atol=1e-5, rtol=1e-4, msg=name)


def test_without_documents_it_is_the_plain_model() -> None:
    ids = torch.randint(2, VOCAB, (3, 16), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(separated(16).logits(ids), small_model().logits(ids), atol=1e-5, rtol=1e-5)


def test_a_changed_token_changes_nothing_in_other_documents() -> None:
    model, ids = separated(), random_ids(64, seed=1, one_in=12)
    ids[0, 0] = 1
    logits = model.logits(ids)
    starts = np.flatnonzero(ids[0] == 1).tolist()
    assert len(starts) >= 4
    for number, (begin, end) in enumerate(zip(starts, [*starts[1:], 64], strict=True)):
        if end - begin < 2:
            continue
        changed = ids.clone()
        changed[0, begin + 1] = 2 + (changed[0, begin + 1] - 1) % (VOCAB - 2)
        different = (model.logits(changed) != logits).any(-1)[0]
        assert different[begin + 1] and not different[:begin].any() and not different[end:].any(), number


def test_copies_are_apart() -> None:
    model, ids = separated(), random_ids(32, seed=2)
    before, twin = model.logits(ids), copy.deepcopy(model)
    with torch.no_grad():
        for p in twin.parameters():
            p.mul_(2)
    assert torch.equal(model.logits(ids), before) and not torch.equal(twin.logits(ids), before)


@pytest.mark.slow
def test_a_compiled_model_computes_the_same() -> None:
    model, ids = separated(longest=8), random_ids(61, seed=3, one_in=9)
    expected = model.token_losses(ids[:, :-1], ids[:, 1:])
    compiled = torch.compile(model.token_losses, dynamic=False, fullgraph=True)
    torch.testing.assert_close(compiled(ids[:, :-1], ids[:, 1:]), expected, atol=1e-5, rtol=1e-5)
    others = random_ids(61, seed=4, one_in=5)
    with torch._dynamo.config.patch(error_on_recompile=True):
        found = compiled(others[:, :-1], others[:, 1:])
    torch.testing.assert_close(found, model.token_losses(others[:, :-1], others[:, 1:]), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("backend", "module"),
    [
        ("fa2", flash_attention_2()),
        ("fa3", flash_attention_3()),
        ("fa3", flash_attention_3(returns_statistics=True)),
        ("varlen", torch_varlen()),
        ("varlen", torch_varlen(tells_shared_heads=False)),
    ],
)
def test_flash_attention_is_called_with_the_documents(
    backend: str, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, module)
    monkeypatch.setattr(flash_stand_ins, "require_flash_inputs", lambda *_: None)
    model = small_model()
    model.cfg = dataclasses.replace(model.cfg, attention=backend)
    separate_documents(model, 16)
    ids = random_ids(48, seed=5, rows=2)
    torch.testing.assert_close(model.logits(ids), separated(16).logits(ids), atol=1e-5, rtol=1e-5)
    # More documents than the kernel's list holds: no number rather than a wrong one.
    crowded = torch.ones(1, 2 * most_pieces(64, 16), dtype=torch.int64)
    assert model.turns(model, crowded, model.tok_emb.weight)[0].isnan().all()
    assert not model.turns(model, ids, model.tok_emb.weight)[0].isnan().any()


def test_attention_within_documents_is_tried_before_it_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = dataclasses.replace(small_model().cfg, compute_dtype="fp32")
    for backend, tried in (("sdpa", "attend_plainly"), ("varlen", "")):
        install(monkeypatch, torch_varlen())
        shape = dataclasses.replace(cfg, attention=backend)
        if tried:
            try_documents(torch.device("cpu"), shape)
            monkeypatch.setattr(documents, tried, fail)
        with pytest.raises(GolfError, match=rf"^model\.attention={backend} fails within documents on this cpu device"):
            try_documents(torch.device("cpu"), shape)


def fail(*_: object) -> Tensor:
    raise RuntimeError("no kernel takes a mask")


def test_a_package_without_the_call_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, flash_attention_4())
    with pytest.raises(GolfError, match=r"^model\.attention=fa2 needs flash_attn_varlen_func of the package"):
        variable_length_kernel(ModelConfig(attention="fa2"))


def test_only_a_cpu_outside_of_a_graph_reads_the_sizes_of_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("attend_one_by_one", "attend_in_spans"):
        monkeypatch.setattr(documents, name, lambda *_, name=name: name)

    def chosen(device: str) -> object:
        q = torch.zeros(1, 8, 2, 4, device=device)
        return documents.attend_plainly(attend_sdpa, q, q, q, torch.zeros(8, device=device), 8)

    assert [chosen("cpu"), chosen("meta")] == ["attend_one_by_one", "attend_in_spans"]
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert [chosen("cpu"), chosen("meta")] == ["attend_in_spans", "attend_in_spans"]
