"""SwiGLU's formula, and its size: as many parameters as the two matrices that it replaces."""

import numpy as np
import pytest
import torch

from golf.settings.config import Config, ModelConfig
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from ideas.swiglu.swiglu import SwiGLU


def small_model(hidden: int, *techniques: SwiGLU) -> GPT:
    shape = ModelConfig(vocab_size=20, num_layers=2, model_dim=16, num_heads=4, num_kv_heads=2, mlp_hidden=hidden)
    return build_model(Config(model=shape, tech={t.name: t for t in techniques})).double()


def mlp_parameters(model: GPT) -> int:
    return sum(p.numel() for name, p in model.named_parameters() if ".mlp." in name)


def test_output_is_the_projected_product_of_gate_and_value() -> None:
    model, generator = small_model(30, SwiGLU()), torch.Generator().manual_seed(0)
    x = torch.randn(5, 16, generator=generator, dtype=torch.float64)
    for block in model.blocks:
        block.mlp.proj.weight.data.normal_(generator=generator)
        gate, up, down = (getattr(block.mlp, name).weight.detach().numpy() for name in ("gate", "fc", "proj"))
        for row, out in zip(x.numpy(), block.mlp(x).detach().numpy(), strict=True):
            z = gate @ row
            np.testing.assert_allclose(out, down @ (z / (1 + np.exp(-z)) * (up @ row)), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("hidden", [3, 30, 31, 32, 992, 1536])
def test_parameters_equal_those_of_the_plain_mlp_up_to_rounding(hidden: int) -> None:
    missing = mlp_parameters(small_model(hidden)) - mlp_parameters(small_model(hidden, SwiGLU()))
    assert 0 <= missing < 2 * 3 * 16  # in two layers less than one hidden channel of three matrices each
    assert missing == 0 or hidden % 3


def test_other_ratios_set_the_hidden_width() -> None:
    assert mlp_parameters(small_model(32, SwiGLU(hidden_ratio=1.0))) == 2 * 3 * 16 * 32


def test_starts_as_nothing() -> None:
    x = torch.randn(5, 16, dtype=torch.float64)
    assert all(block.mlp(x).abs().max() == 0 for block in small_model(30, SwiGLU()).blocks)
