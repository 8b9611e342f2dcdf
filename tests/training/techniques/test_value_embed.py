"""Which layers get value embeddings, scaled by what, and from how many computations."""

import numpy as np
import pytest
import torch
from torch import Tensor

from golf.settings.config import Config, ModelConfig
from golf.training.model.attention import CausalSelfAttention
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from golf.training.techniques.value_embed import ValueEmbed

IDS = torch.tensor([[3, 9, 9, 0, 17], [1, 2, 3, 4, 5]])


def small_model(layers: list[int], *, shaken: bool = True) -> GPT:
    shape = ModelConfig(vocab_size=20, num_layers=5, model_dim=16, num_heads=4, num_kv_heads=2, compute_dtype="fp32")
    model = build_model(Config(model=shape, tech={"value_embed": ValueEmbed(dim=6, layers=layers)})).double()
    generator = torch.Generator().manual_seed(0)
    for param in model.parameters() if shaken else []:
        param.data.normal_(0, 0.5, generator=generator)
    return model


def inputs_and_values(model: GPT) -> list[tuple[Tensor, Tensor]]:
    """For each layer the attention's input `[B, T, d]` and the values that it attends to, `[B, T, K·D]`."""
    seen: list[tuple[Tensor, Tensor]] = []

    def watch(attn: CausalSelfAttention) -> None:
        inputs, attend = [], attn.attend
        attn.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))

        def recorded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            seen.append((inputs[-1], v.flatten(2)))
            return attend(q, k, v)

        attn.attend = recorded

    for block in model.blocks:
        watch(block.attn)
    with torch.no_grad():
        model.logits(IDS)
    return seen


@pytest.mark.parametrize(("layers", "scale_of_layer"), [([-2, -1], {3: 0, 4: 1}), ([4, 0, -3], {4: 0, 0: 1, 2: 2})])
def test_listed_layers_add_the_projected_row_times_both_scales(
    layers: list[int], scale_of_layer: dict[int, int]
) -> None:
    model = small_model(layers)
    weights = {k: p.detach().numpy() for k, p in model.named_parameters()}
    for layer, (x, values) in enumerate(inputs_and_values(model)):
        for b, t in np.ndindex(*IDS.shape):
            expected = weights[f"blocks.{layer}.attn.c_v.weight"] @ x[b, t].numpy()
            if layer in scale_of_layer:
                row = weights["ve_shared.proj.weight"] @ weights["ve_shared.embed.weight"][IDS[b, t]]
                own_scale = weights[f"ve_layer_scales.{scale_of_layer[layer]}"][0]
                expected = expected + row * weights["ve_shared.scale"] * own_scale
            np.testing.assert_allclose(values[b, t].numpy(), expected, rtol=1e-9, atol=1e-12)


def test_the_table_is_read_once_however_many_layers_use_it() -> None:
    model, calls = small_model([0, 1, 2, 3]), []
    for module in (model.ve_shared, model.ve_shared.embed, model.ve_shared.proj):
        module.register_forward_hook(lambda *_: calls.append(1))
    model.logits(IDS)
    assert len(calls) == 3


def test_the_start() -> None:
    model = small_model([-2, -1], shaken=False)
    assert model.ve_shared.embed.weight.std().item() == pytest.approx(0.01, rel=0.2)
    assert model.ve_shared.proj.weight.abs().max() == 0
    assert [model.ve_shared.scale.item(), *(s.item() for s in model.ve_layer_scales)] == pytest.approx([0.1, 1, 1])
