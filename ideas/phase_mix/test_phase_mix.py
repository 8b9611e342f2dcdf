"""The residual mix starts at a sigmoid over depth."""

import math

import pytest
import torch

from golf.settings.config import Config, ModelConfig
from golf.training.model.build import build_model
from ideas.phase_mix.phase_mix import PhaseMix


def mixes(layers: int, **settings: float) -> torch.Tensor:
    """Initial weights of stream and embedding, `[L, 2, d]`."""
    shape = ModelConfig(vocab_size=20, num_layers=layers, model_dim=8, num_heads=2, num_kv_heads=1)
    model = build_model(Config(model=shape, tech={"phase_mix": PhaseMix(**settings)}))
    return torch.stack([block.resid_mix.detach() for block in model.blocks])


@pytest.mark.parametrize("layers", [2, 5, 9])
@pytest.mark.parametrize("sharpness", [3.0, 7.0])
def test_weights_follow_the_formula_in_every_channel(layers: int, sharpness: float) -> None:
    for i, (stream, embedding) in enumerate(mixes(layers, sharpness=sharpness)):
        m = 1 / (1 + math.exp(-sharpness * (i / (layers - 1) - 0.5)))
        torch.testing.assert_close(stream, torch.full((8,), m))
        torch.testing.assert_close(embedding, torch.full((8,), 1 - m))


def test_five_layers_at_the_default_go_from_the_embedding_to_the_stream() -> None:
    found = mixes(5)[:, 0, 0].tolist()
    assert found == pytest.approx([0.18243, 0.32082, 0.5, 0.67918, 0.81757], abs=1e-5)


def test_a_single_layer_is_the_first() -> None:
    assert mixes(1)[0, 0, 0].item() == pytest.approx(0.18243, abs=1e-5)
