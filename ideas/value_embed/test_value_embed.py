"""Which layers get value embeddings, scaled by what, and from how many computations."""

import numpy as np
import pytest
import torch

from ideas.value_embed.value_embed import ValueEmbed
from tests.training.techniques.small import inputs_and_values, small_model

IDS = torch.tensor([[3, 9, 9, 0, 17], [1, 2, 3, 4, 5]])


@pytest.mark.parametrize(("layers", "scale_of_layer"), [([-2, -1], {3: 0, 4: 1}), ([4, 0, -3], {4: 0, 0: 1, 2: 2})])
def test_listed_layers_add_the_projected_row_times_both_scales(
    layers: list[int], scale_of_layer: dict[int, int]
) -> None:
    model = small_model(ValueEmbed(dim=6, layers=layers), layers=5)
    weights = {k: p.detach().numpy() for k, p in model.named_parameters()}
    for layer, (x, values) in enumerate(inputs_and_values(model, IDS)):
        for b, t in np.ndindex(*IDS.shape):
            expected = weights[f"blocks.{layer}.attn.c_v.weight"] @ x[b, t].numpy()
            if layer in scale_of_layer:
                row = weights["ve_shared.proj.weight"] @ weights["ve_shared.embed.weight"][IDS[b, t]]
                own_scale = weights[f"ve_layer_scales.{scale_of_layer[layer]}"][0]
                expected = expected + row * weights["ve_shared.scale"] * own_scale
            np.testing.assert_allclose(values[b, t].numpy(), expected, rtol=1e-9, atol=1e-12)


def test_the_table_is_read_once_however_many_layers_use_it() -> None:
    model, calls = small_model(ValueEmbed(dim=6, layers=[0, 1, 2, 3]), layers=5), []
    for module in (model.ve_shared, model.ve_shared.embed, model.ve_shared.proj):
        module.register_forward_hook(lambda *_: calls.append(1))
    model.logits(IDS)
    assert len(calls) == 3


def test_the_start() -> None:
    model = small_model(ValueEmbed(dim=6, layers=[-2, -1]), layers=5, shaken=False)
    assert model.ve_shared.embed.weight.std().item() == pytest.approx(0.01, rel=0.2)
    assert model.ve_shared.proj.weight.abs().max() == 0
    assert [model.ve_shared.scale.item(), *(s.item() for s in model.ve_layer_scales)] == pytest.approx([0.1, 1, 1])
