"""The layer against a loop over tokens and experts, its size, its start, and that every expert is reached."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import golf
from golf.errors import GolfError
from golf.training.model.layers import MLP
from ideas.soft_experts.soft_experts import SoftExperts, SoftMoE
from tests.training.techniques.small import small_model


def test_the_output_is_that_of_a_loop_over_tokens_and_experts() -> None:
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for block in small_model(SoftMoE(count=4), layers=2).blocks:
        layer = block.mlp
        router, found = layer.router.weight.detach().numpy(), layer(x).detach().numpy()
        for token, out in zip(x.view(-1, 16).numpy(), found.reshape(-1, 16), strict=True):
            powers = [np.exp(sum(w * v for w, v in zip(row, token, strict=True))) for row in router]
            expected = np.zeros(16)
            for power, expert in zip(powers, layer.experts, strict=True):
                inner = np.maximum(expert.fc.weight.detach().numpy() @ token, 0) ** 2
                expected += power / sum(powers) * (expert.proj.weight.detach().numpy() @ inner)
            # The shares are float32.
            np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


def test_equal_experts_are_one() -> None:
    torch.manual_seed(0)
    layer, single = SoftExperts(8, 12, 3), MLP(8, 12)
    single.proj.weight.data.normal_()
    layer.router.weight.data.normal_()
    for expert in layer.experts:
        expert.load_state_dict(single.state_dict())
    x = torch.randn(7, 8)
    torch.testing.assert_close(layer(x), single(x))


def test_every_expert_has_a_gradient() -> None:
    model = small_model(SoftMoE(count=4), layers=2)
    ids = torch.arange(12)[None] % 20
    model(ids, ids.roll(1, 1)).backward()
    grads = {name: p.grad for name, p in model.named_parameters() if ".mlp." in name}
    assert len(grads) == 2 * (2 * 4 + 1)
    assert all(grad is not None and grad.any(1).any() for grad in grads.values())


def test_weights_are_those_of_the_plain_mlp_and_the_routers() -> None:
    def size(*techniques: SoftMoE) -> int:
        return sum(p.numel() for p in small_model(*techniques, layers=2).parameters())

    assert size(SoftMoE(count=4)) - size() == 2 * 4 * 16


def test_a_width_that_does_not_divide_is_refused() -> None:
    with pytest.raises(GolfError, match="has to divide"):
        golf.compose(
            ["model=4l", "scale=laptop", "model.mlp_hidden=30", "tech=[soft_experts]", "tech.soft_experts.count=4"]
        )
