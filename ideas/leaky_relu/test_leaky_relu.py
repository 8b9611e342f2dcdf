"""LeakyReLU² is x² above zero and (slope·x)² below, in every layer's MLP."""

import numpy as np
import pytest
import torch

from golf.settings.config import Config, ModelConfig
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from ideas.leaky_relu.leaky_relu import LeakyRelu


def small_model(slope: float) -> GPT:
    shape = ModelConfig(vocab_size=20, num_layers=3, model_dim=16, num_heads=4, num_kv_heads=2)
    return build_model(Config(model=shape, tech={"leaky_relu": LeakyRelu(slope=slope)})).double()


def test_closed_form_at_the_default_slope() -> None:
    activation = small_model(LeakyRelu().slope).blocks[0].mlp.activation
    x = torch.tensor([-4.0, -2.0, -0.5, 0.0, 0.5, 3.0])
    assert activation(x).tolist() == [4.0, 1.0, 0.0625, 0.0, 0.25, 9.0]  # x² / 4 below zero


def test_gradient_is_twice_x_above_and_half_x_below() -> None:
    x = torch.tensor([-4.0, -1.0, 2.0], requires_grad=True)
    small_model(0.5).blocks[0].mlp.activation(x).sum().backward()
    assert x.grad.tolist() == [-2.0, -0.5, 4.0]


@pytest.mark.parametrize("slope", [0.0, 0.5, 0.9])
def test_every_mlp_computes_it_between_its_matrices(slope: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, 16, generator=generator, dtype=torch.float64)
    for block in small_model(slope).blocks:
        block.mlp.proj.weight.data.normal_(generator=generator)
        inner, outer = (m.weight.detach().numpy() for m in (block.mlp.fc, block.mlp.proj))
        hidden = inner @ x.numpy().T
        hidden = np.where(hidden > 0, hidden, slope * hidden) ** 2
        np.testing.assert_allclose(block.mlp(x).detach().numpy(), (outer @ hidden).T, rtol=1e-9, atol=1e-12)
