"""A gate for every head and position, computed from the layer's normalised input."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from golf.settings.config import Config, ModelConfig
from golf.training.model.attention import CausalSelfAttention
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from golf.training.techniques.xsa import XSA
from ideas.gated_attention.gated_attention import GatedAttention

IDS = torch.tensor([[3, 9, 9, 0, 17, 5]])


def small_model(*techniques: GatedAttention | XSA) -> GPT:
    shape = ModelConfig(vocab_size=20, num_layers=2, model_dim=16, num_heads=4, num_kv_heads=2, compute_dtype="fp32")
    model = build_model(Config(model=shape, tech={t.name: t for t in techniques})).double()
    generator = torch.Generator().manual_seed(0)
    model.tok_emb.weight.data.normal_(generator=generator)
    for block in model.blocks:
        block.attn.proj.weight.data.normal_(generator=generator)
    return model


def gated(attn: CausalSelfAttention, model: GPT) -> tuple[np.ndarray, ...]:
    """The layer's input `[T, d]`, what attention gives and what is projected `[T, H, D]`, and the values `[T, K, D]`"""
    seen: list[Tensor] = []
    attend = attn.attend

    def recorded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        seen.extend((attend(q, k, v), v))
        return seen[-2]

    attn.attend = recorded
    attn.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    attn.proj.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with torch.no_grad():
        model.logits(IDS)
    x, y, v, projected = (t[0].numpy() for t in seen)
    return x, y, projected.reshape(y.shape), v


@pytest.mark.parametrize("exclusive", [False, True])
def test_each_head_is_scaled_by_the_sigmoid_of_its_own_row(exclusive: bool) -> None:
    model = small_model(GatedAttention(), *([XSA(last_n=None)] if exclusive else []))
    attn = model.blocks[1].attn
    torch.nn.init.normal_(attn.attn_gate.weight, generator=torch.Generator().manual_seed(1))
    torch.nn.init.normal_(attn.attn_gate.bias, generator=torch.Generator().manual_seed(2))
    weight, bias = attn.attn_gate.weight.detach().numpy(), attn.attn_gate.bias.detach().numpy()
    x, y, projected, v = gated(attn, model)
    for t, h in np.ndindex(*y.shape[:2]):
        head, own = y[t, h], v[t, h // 2]
        if exclusive:
            head = head - (head @ own) / (own @ own) * own
        gate = 1 / (1 + math.exp(-(weight[h] @ x[t] + bias[h])))
        np.testing.assert_allclose(projected[t, h], gate * head, rtol=1e-9, atol=1e-12)


def test_starts_nearly_open_whatever_the_input() -> None:
    model = small_model(GatedAttention())
    _, y, projected, _ = gated(model.blocks[0].attn, model)
    np.testing.assert_allclose(projected, 0.982 * y, rtol=1e-3)


def test_number_of_parameters_of_a_layer() -> None:
    added = sum(p.numel() for p in small_model(GatedAttention()).parameters())
    assert added - sum(p.numel() for p in small_model().parameters()) == 2 * 4 * (16 + 1)


@pytest.mark.parametrize(
    ("technique", "at_start"),
    [
        (GatedAttention(bias=None, window=5, multiplier=2.0), 1.0),  # attention output gate
        (GatedAttention(bias=None, window=5, scale=0.5), 0.5),  # sparse gate
        (GatedAttention(bias=None, init_std=0.005), 0.5),  # unbiased gate
    ],
)
def test_gates_of_the_records(technique: GatedAttention, at_start: float) -> None:
    """m·σ(s·W·x[:window]) without bias, from its start and with weights, against scalar arithmetic."""
    model = small_model(technique)
    attn = model.blocks[1].attn
    window = technique.window or 16
    assert {name for name, _ in attn.attn_gate.named_parameters()} == {"weight"}
    assert tuple(attn.attn_gate.weight.shape) == (4, window)
    _, y, projected, _ = gated(attn, model)
    np.testing.assert_allclose(projected, at_start * y, rtol=0.03)
    assert technique.init_std > 0 or np.array_equal(projected, at_start * y)
    model = small_model(technique)
    attn = model.blocks[1].attn
    torch.nn.init.normal_(attn.attn_gate.weight, generator=torch.Generator().manual_seed(1))
    weight = attn.attn_gate.weight.detach().numpy()
    x, y, projected, _ = gated(attn, model)
    for t, h in np.ndindex(*y.shape[:2]):
        gate = technique.multiplier / (1 + math.exp(-technique.scale * (weight[h] @ x[t, :window])))
        np.testing.assert_allclose(projected[t, h], gate * y[t, h], rtol=1e-9, atol=1e-12)


def test_a_gate_may_read_the_queries() -> None:
    model = small_model(GatedAttention(bias=None, window=5, reads="queries"))
    attn = model.blocks[1].attn
    torch.nn.init.normal_(attn.attn_gate.weight, generator=torch.Generator().manual_seed(1))
    x, y, projected, _ = gated(attn, model)
    queries = x @ attn.c_q.weight.detach().numpy().T
    gate = 1 / (1 + np.exp(-queries[:, :5] @ attn.attn_gate.weight.detach().numpy().T))
    np.testing.assert_allclose(projected, gate[..., None] * y, rtol=1e-9, atol=1e-12)


def test_the_published_number_of_gate_parameters() -> None:
    """11 layers of 8 heads: 1,056 with a window of 12, 45,056 over all 512 channels."""
    for technique, expected in ((GatedAttention(bias=None, window=12), 1056), (GatedAttention(bias=None), 45_056)):
        with torch.device("meta"):
            shape = ModelConfig(num_layers=11)
            model = build_model(Config(model=shape, tech={"gated_attention": technique}))
        assert sum(p.numel() for name, p in model.named_parameters() if "attn_gate" in name) == expected
