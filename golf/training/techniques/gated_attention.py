"""Gated attention: every head's output times a sigmoid gate computed from the layer's input."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from golf.settings.config import Config
from golf.training.model.attention import CausalSelfAttention
from golf.training.model.gpt import GPT
from golf.training.techniques.base import Technique, technique

BIAS_INIT = 4.0  # σ(4) = 0.982: nearly open at the start


def gate_heads(attn: CausalSelfAttention, y: Tensor, v: Tensor, x: Tensor) -> Tensor:
    """Multiply `y` `[B, T, H, D]` by σ(W·x + b) `[B, T, H]`, with x the normalised input of the layer."""
    gate = F.linear(x, attn.attn_gate.weight.to(x.dtype), attn.attn_gate.bias.to(x.dtype))
    return y * torch.sigmoid(gate)[..., None]


@technique("gated_attention")
@dataclass
class GatedAttention(Technique):
    """After exclusive self-attention, before the output projection; H·(d+1) parameters a layer, kept from Muon."""

    source = "arXiv 2505.06708; PR #413"
    groups = (("*.attn.attn_gate.*", "scalar"),)
    control_names = ("attn_gate",)

    def edit_model(self, model: GPT, cfg: Config) -> None:
        for block in model.blocks:
            gate = nn.Linear(cfg.model.model_dim, cfg.model.num_heads)
            nn.init.zeros_(gate.weight)
            nn.init.constant_(gate.bias, BIAS_INIT)
            block.attn.attn_gate = gate
            block.attn.output_hooks.append(gate_heads)
