"""The hash against the published vectors and Python's own integers; the sum against loops."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from golf.settings.config import Config, ModelConfig
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from golf.training.optim.groups import group_parameters
from ideas.bigram.bigram import Bigram, linear_buckets, ngram_buckets

IDS = torch.tensor([[3, 3, 11, 0, 39, 11, 0]])


def small_model(*techniques: Bigram) -> GPT:
    model = ModelConfig(vocab_size=40, num_layers=1, model_dim=8, num_heads=2, num_kv_heads=1, compute_dtype="fp32")
    return build_model(Config(model=model, tech={t.name: t for t in techniques})).double()


@pytest.mark.parametrize(
    ("previous", "current", "bucket"), [(5, 7, 1082), (1, 300, 1351), (1023, 1023, 977), (0, 0, 0)]
)
def test_published_vectors_of_the_hash(previous: int, current: int, bucket: int) -> None:
    assert ngram_buckets(torch.tensor([[previous, current]]), 2048).tolist() == [[2047, bucket]]


@given(
    ids=st.lists(st.integers(0, 65_535), min_size=1, max_size=6),
    buckets=st.integers(2, 20_000),
    order=st.sampled_from([2, 3]),
)
@settings(deadline=None)
def test_buckets_are_those_of_unbounded_integers_and_the_first_are_reserved(
    ids: list[int], buckets: int, order: int
) -> None:
    expected = [buckets - 1] * min(order - 1, len(ids))
    for t in range(order - 1, len(ids)):
        mixed = (36313 * ids[t]) ^ (27191 * ids[t - 1])
        if order == 3:
            mixed ^= 51497 * ids[t - 2]
        expected.append(mixed % (buckets - 1))
    assert ngram_buckets(torch.tensor([ids]), buckets, order).tolist() == [expected]
    assert all(0 <= bucket < buckets - 1 for bucket in expected[order - 1 :])


def test_sequences_of_a_batch_do_not_see_each_other() -> None:
    together = ngram_buckets(torch.cat([IDS, IDS.flip(1)]), 64, 3)
    assert torch.equal(together[1:], ngram_buckets(IDS.flip(1), 64, 3))


@pytest.mark.parametrize(("dim", "order"), [(5, 2), (5, 3), (8, 2)])
def test_stream_starts_at_the_norm_of_token_plus_scaled_projected_row(dim: int, order: int) -> None:
    model = small_model(Bigram(buckets=32, dim=dim, order=order))
    generator = torch.Generator().manual_seed(0)
    for param in model.bigram.parameters():
        param.data.normal_(generator=generator)
    weights = {k: p.detach().numpy() for k, p in model.named_parameters()}
    projection = weights.get("bigram.proj.weight", np.eye(8))
    assert ("bigram.proj.weight" in weights) == (dim != 8)  # a table as wide as the model needs none
    buckets = ngram_buckets(IDS, 32, order)[0].tolist()
    for t, token in enumerate(IDS[0].tolist()):
        row = projection @ weights["bigram.embed.weight"][buckets[t]]
        stream = weights["tok_emb.weight"][token] + weights["bigram.scale"] * row
        stream /= np.sqrt(np.mean(stream**2) + np.finfo(np.float64).eps)
        np.testing.assert_allclose(model.stream_start(IDS)[0, t].detach().numpy(), stream, rtol=1e-9)


def test_starts_as_nothing_with_a_gradient_on_the_table() -> None:
    model, plain = small_model(Bigram(buckets=32, dim=5)), small_model()
    assert model.bigram.scale.item() == pytest.approx(0.05)
    assert torch.equal(model.stream_start(IDS), plain.stream_start(IDS))
    model.stream_start(IDS).pow(3).sum().backward()
    used = sorted(set(ngram_buckets(IDS, 32)[0].tolist()))
    touched = model.bigram.embed.weight.grad.abs().sum(1).nonzero()[:, 0].tolist()
    assert touched == used


def test_number_of_parameters() -> None:
    added = sum(p.numel() for p in small_model(Bigram(buckets=32, dim=5)).parameters())
    assert added - sum(p.numel() for p in small_model().parameters()) == 32 * 5 + 5 * 8 + 1


@given(ids=st.lists(st.integers(0, 65_535), min_size=1, max_size=6), buckets=st.integers(2, 20_000))
@settings(deadline=None)
def test_linear_buckets_are_those_of_unbounded_integers(ids: list[int], buckets: int) -> None:
    expected = [(92821 * before + now) % buckets for before, now in zip([0, *ids], ids, strict=False)]
    assert linear_buckets(torch.tensor([ids]), buckets).tolist() == [expected]


def test_the_linear_hash_adds_a_projected_row_and_starts_as_nothing() -> None:
    model, plain = small_model(Bigram(buckets=32, dim=5, hash="linear")), small_model()
    names = {name for name, _ in model.named_parameters() if name.startswith("bigram")}
    assert names == {"bigram.embed.weight", "bigram.proj.weight"}
    assert 0.005 < model.bigram.embed.weight.std().item() < 0.02
    assert torch.equal(model.stream_start(IDS), plain.stream_start(IDS))
    model.bigram.proj.weight.data.normal_(generator=torch.Generator().manual_seed(0))
    rows = model.bigram.embed.weight[linear_buckets(IDS, 32)] @ model.bigram.proj.weight.T
    expected = torch.nn.functional.rms_norm(model.tok_emb.weight[IDS] + rows, (8,))
    torch.testing.assert_close(model.stream_start(IDS), expected)


def test_pairs_are_added_to_triples_from_one_table() -> None:
    both = small_model(Bigram(buckets=32, dim=5, order=3, add_pairs=True))
    both.bigram.embed.weight.data.normal_(generator=torch.Generator().manual_seed(0))
    pairs, triples = (both.bigram.embed.weight[ngram_buckets(IDS, 32, order)] for order in (2, 3))
    expected = both.tok_emb.weight[IDS] + 0.05 * (pairs + triples) @ both.bigram.proj.weight.T
    torch.testing.assert_close(both.stream_start(IDS), torch.nn.functional.rms_norm(expected, (8,)))


@pytest.mark.parametrize(("optimizer", "group"), [("muon", "matrix"), ("adam", "scalar")])
def test_the_projection_belongs_to_the_optimizer_that_is_named(optimizer: str, group: str) -> None:
    technique = Bigram(buckets=32, dim=5, proj_optimizer=optimizer)
    model = small_model(technique)
    assert any(p is model.bigram.proj.weight for p in group_parameters(model, [technique])[group])


@pytest.mark.parametrize("settings", [{}, {"order": 3, "add_pairs": True}, {"hash": "linear"}], ids=str)
def test_masked_documents_start_as_they_would_alone(settings: dict) -> None:
    def start(ids: torch.Tensor, *, mask_bos: bool) -> torch.Tensor:
        model = small_model(Bigram(buckets=32, dim=5, mask_bos=mask_bos, **settings))
        for weight in (model.bigram.embed.weight, model.bigram.proj.weight):
            weight.data.normal_(generator=torch.Generator().manual_seed(0))
        return model.stream_start(ids)

    ids = torch.tensor([[5, 6, 1, 4, 3, 1, 7]])
    for begin, end in ((2, 5), (5, 7)):
        alone = ids[:, begin:end]
        torch.testing.assert_close(start(ids, mask_bos=True)[:, begin:end], start(alone, mask_bos=True))
        assert not torch.allclose(start(ids, mask_bos=False)[:, begin], start(alone, mask_bos=False)[:, 0])
