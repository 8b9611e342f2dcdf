"""An eps of its own for each norm, and what 1e-6 does to inputs as small as a fresh embedding."""

import math

import pytest
import torch

from golf.settings.config import Config, ModelConfig
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from golf.training.model.layers import RMSNorm
from ideas.ln_scale.ln_scale import LNScale
from ideas.norm_eps.norm_eps import NormEps

PLACES = ("attn", "mlp", "qk", "embed", "final")


def norms(model: GPT) -> dict[str, RMSNorm]:
    block = model.blocks[1]
    found = (block.attn_norm, block.mlp_norm, block.attn.qk_norm, model.embed_norm, model.final_norm)
    return dict(zip(PLACES, found, strict=True))


def small_model(*techniques: NormEps | LNScale) -> GPT:
    shape = ModelConfig(vocab_size=20, num_layers=2, model_dim=8, num_heads=2, num_kv_heads=1)
    return build_model(Config(model=shape, tech={t.name: t for t in techniques}))


def rms_out(norm: RMSNorm, rms_in: float) -> float:
    x = rms_in * torch.tensor([[1.0, -1.0] * 8])
    return norm(x).square().mean().sqrt().item()


def test_a_millionth_takes_two_percent_off_a_fresh_embedding_and_the_default_does_not() -> None:
    found = norms(small_model(NormEps(attn=1e-6)))
    assert rms_out(found["attn"], 0.005) == pytest.approx(0.980, abs=1e-3)
    assert rms_out(found["mlp"], 0.005) == pytest.approx(0.998, abs=1e-3)
    assert rms_out(found["attn"], 1.0) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("place", PLACES)
def test_each_eps_changes_its_own_norm_alone(place: str) -> None:
    found = norms(small_model(NormEps(**{"attn": None, place: 0.25})))
    for name, norm in found.items():
        eps = 0.25 if name == place else torch.finfo(torch.float32).eps
        assert rms_out(norm, 0.5) == pytest.approx(0.5 / math.sqrt(0.25 + eps), rel=1e-5)


def test_goes_together_with_scaled_norms() -> None:
    found = norms(small_model(NormEps(attn=0.25), LNScale()))
    assert rms_out(found["attn"], 0.5) == pytest.approx(0.5 / math.sqrt(0.5) / math.sqrt(2))
    assert rms_out(found["mlp"], 0.5) == pytest.approx(1 / math.sqrt(2))
