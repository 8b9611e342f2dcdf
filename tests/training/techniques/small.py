"""A small model with techniques in it, and what its attention computes with."""

from typing import Any

import torch
from torch import Tensor

from golf.settings.config import Config, ModelConfig
from golf.training.model.attention import CausalSelfAttention
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT


def small_model(*techniques: Any, layers: int, shaken: bool = True) -> GPT:
    """A float64 model of 20 tokens and 4 heads; shaken: with weights at which every part of it matters."""
    shape = ModelConfig(
        vocab_size=20, num_layers=layers, model_dim=16, num_heads=4, num_kv_heads=2, compute_dtype="fp32"
    )
    model = build_model(Config(model=shape, tech={t.name: t for t in techniques})).double()
    generator = torch.Generator().manual_seed(0)
    for param in model.parameters() if shaken else []:
        param.data.normal_(0, 0.5, generator=generator)
    return model


def inputs_and_values(model: GPT, ids: Tensor) -> list[tuple[Tensor, Tensor]]:
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
        model.logits(ids)
    return seen
