"""The values that later layers attend to, from those of the first, in both published forms."""

import numpy as np
import pytest
import torch

from ideas.value_embed.value_embed import ValueEmbed
from ideas.value_residual.value_residual import ValueResidual
from tests.training.techniques.small import inputs_and_values, small_model

IDS = torch.tensor([[3, 9, 9, 0, 17]])


@pytest.mark.parametrize("mode", ["lambda", "sigmoid"])
@pytest.mark.parametrize("embedded", [[], [0, 2]])
def test_later_layers_mix_in_the_first_ones_values_with_their_embeddings(mode: str, embedded: list[int]) -> None:
    model = small_model(ValueResidual(mode=mode), *([ValueEmbed(dim=6, layers=embedded)] if embedded else []), layers=4)
    weights = {k: p.detach().numpy() for k, p in model.named_parameters()}
    first = np.zeros(0)
    for layer, (x, values) in enumerate(inputs_and_values(model, IDS)):
        expected = x.numpy() @ weights[f"blocks.{layer}.attn.c_v.weight"].T
        if layer in embedded:
            rows = weights["ve_shared.embed.weight"][IDS[0]] @ weights["ve_shared.proj.weight"].T
            scale = weights["ve_shared.scale"] * weights[f"ve_layer_scales.{embedded.index(layer)}"]
            expected = expected + rows * scale
        if layer == 0:
            first = expected
        elif mode == "lambda":
            of_first, of_own = weights[f"blocks.{layer}.attn.vr_lambda"]
            expected = of_first * first + of_own * expected
        else:
            expected = expected + first / (1 + np.exp(-weights[f"blocks.{layer}.attn.vr_alpha"]))
        np.testing.assert_allclose(values.numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("mode", "name", "of_first", "of_own"), [("lambda", "vr_lambda", 0.5, 0.5), ("sigmoid", "vr_alpha", 0.5, 1.0)]
)
def test_every_layer_but_the_first_has_a_parameter_that_starts_at_half(
    mode: str, name: str, of_first: float, of_own: float
) -> None:
    model = small_model(ValueResidual(mode=mode), layers=4, shaken=False)
    own = [k for k, _ in model.named_parameters() if "vr_" in k]
    assert own == [f"blocks.{i}.attn.{name}" for i in (1, 2, 3)]
    (_, first), *later = inputs_and_values(model, IDS)
    for block, (x, values) in zip(list(model.blocks)[1:], later, strict=True):
        torch.testing.assert_close(values, of_first * first + of_own * (x @ block.attn.c_v.weight.T))
