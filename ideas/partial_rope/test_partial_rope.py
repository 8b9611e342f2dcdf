"""Which channels turn, at which frequencies, and the base of longer sequences."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from golf.settings.config import Config, ModelConfig
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from golf.training.model.rotary import apply_rotary
from ideas.partial_rope.partial_rope import PartialRope


def small_model(**settings: int | None) -> GPT:
    shape = ModelConfig(vocab_size=20, num_layers=2, model_dim=128, num_heads=2, num_kv_heads=1, compute_dtype="fp32")
    model = build_model(Config(model=shape, tech={"partial_rope": PartialRope(**settings)})).double()
    generator = torch.Generator().manual_seed(0)
    for param in model.parameters():
        param.data.normal_(0, 0.3, generator=generator)
    return model


def turned(model: GPT, x: Tensor) -> Tensor:
    return apply_rotary(x, *model.rotary.tables(x.size(1), like=x))


@pytest.mark.parametrize(("dims", "base"), [(16, 22_081.79), (32, 20_945.88), (64, 20_452.23)])
def test_base_at_twice_the_reference_length(dims: int, base: float) -> None:
    rotary = small_model(dims=dims, reference_len=1024).rotary
    assert rotary.base_for(2048) == pytest.approx(base, abs=0.005)
    assert rotary.base_for(1024) == rotary.base_for(1) == 10_000.0
    assert small_model(dims=dims, reference_len=None).rotary.base_for(8192) == 10_000.0


@pytest.mark.parametrize("dims", [2, 16, 64])
@pytest.mark.parametrize("reference_len", [None, 4])
def test_channels_of_a_pair_turn_together_and_the_others_pass(dims: int, reference_len: int | None) -> None:
    x = torch.randn(2, 9, 3, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    base = 10_000.0
    if reference_len and dims > 2:  # two channels turn at base⁰ = 1, whatever the base
        base *= (9 / reference_len) ** (dims / (dims - 2))
    expected = x.numpy().copy()
    for b, t, h in np.ndindex(2, 9, 3):
        for j in range(dims // 2):
            angle = t * base ** (-2 * j / dims)
            first, second = x[b, t, h, j].item(), x[b, t, h, j + dims // 2].item()
            expected[b, t, h, j] = first * math.cos(angle) + second * math.sin(angle)
            expected[b, t, h, j + dims // 2] = second * math.cos(angle) - first * math.sin(angle)
    found = turned(small_model(dims=dims, reference_len=reference_len), x)
    np.testing.assert_allclose(found.numpy(), expected, atol=5e-6)
    assert torch.equal(found[..., dims:], x[..., dims:])


def test_scores_depend_on_the_distance_alone() -> None:
    model = small_model(dims=16)
    q, k = torch.randn(2, 1, 1, 1, 64, generator=torch.Generator().manual_seed(1)).expand(2, 1, 12, 1, 64)
    scores = torch.einsum("bthc,bshc->ts", turned(model, q), turned(model, k))
    for distance in range(12):
        diagonal = scores.diagonal(-distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(scores[0, 0], scores[5, 0])


def test_a_fixed_length_makes_predictions_independent_of_what_follows() -> None:
    ids = torch.arange(12)[None]
    fixed, per_call = small_model(dims=16, reference_len=4, seq_len=12), small_model(dims=16, reference_len=4)
    torch.testing.assert_close(fixed.logits(ids), per_call.logits(ids))
    torch.testing.assert_close(fixed.logits(ids[:, :8]), fixed.logits(ids)[:, :8])
    assert not torch.allclose(per_call.logits(ids[:, :8]), per_call.logits(ids)[:, :8], atol=1e-4)
