"""A factor on the norms, and its exact consequence: attention scales by f, a squared MLP by f²."""

import pytest
import torch

from golf.settings.config import Config, ModelConfig
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from golf.training.model.layers import Context
from ideas.leaky_relu.leaky_relu import LeakyRelu
from ideas.ln_scale.ln_scale import LNScale

LAYERS = 4


def small_model(*techniques: LNScale | LeakyRelu) -> GPT:
    shape = ModelConfig(vocab_size=20, num_layers=LAYERS, model_dim=16, num_heads=4, num_kv_heads=2)
    model = build_model(Config(model=shape, tech={t.name: t for t in techniques})).double()
    generator = torch.Generator().manual_seed(0)
    for param in model.parameters():
        param.data.normal_(0, 0.5, generator=generator)
    return model


def test_factors_fall_with_the_root_of_the_layer_and_both_norms_have_them() -> None:
    x = torch.randn(3, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    unit = x / x.square().mean(-1, keepdim=True).sqrt()
    for factor, block in zip([1.0, 0.70710678, 0.57735027, 0.5], small_model(LNScale()).blocks, strict=True):
        torch.testing.assert_close(block.attn_norm(x), factor * unit)
        torch.testing.assert_close(block.mlp_norm(x), factor * unit)


def test_queries_keys_and_the_last_norm_are_left_alone() -> None:
    model, plain = small_model(LNScale()), small_model()
    assert model.final_norm == plain.final_norm and model.embed_norm == plain.embed_norm
    assert all(a.attn.qk_norm == b.attn.qk_norm for a, b in zip(model.blocks, plain.blocks, strict=True))


@pytest.mark.parametrize("activation", [[], [LeakyRelu()]])
def test_a_block_adds_f_times_its_attention_and_f_squared_times_its_mlp(activation: list[LeakyRelu]) -> None:
    model, plain = small_model(LNScale(), *activation), small_model(*activation)
    x = torch.randn(2, 6, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    context = Context(torch.zeros(2, 6, dtype=torch.int64), x, *plain.rotary.tables(6, like=x), {}, ())
    for i in range(LAYERS):
        f, block = (i + 1) ** -0.5, plain.blocks[i]
        stream = (block.resid_mix[0] + block.resid_mix[1]) * x  # the embedding output is x here, too
        stream = stream + f * block.attn_scale * block.attn(block.attn_norm(stream), context)
        stream = stream + f**2 * block.mlp_scale * block.mlp(block.mlp_norm(stream))
        torch.testing.assert_close(model.blocks[i](x, context), stream)
