"""Gated exclusive self-attention: every head learns how much of what its own value explains is left out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from golf.registry import Variable
from golf.settings.config import Config
from golf.training.model.attention import CausalSelfAttention
from golf.training.model.gpt import GPT
from golf.training.techniques.base import Technique, technique
from golf.training.techniques.xsa import exclude_own_value


def exclude_by_gate(attn: CausalSelfAttention, y: Tensor, v: Tensor, x: Tensor) -> Tensor:
    """Return y - tanh(α)(y·v̂)v̂ per head: `y` `[B, T, H, D]`, `v` `[B, T, K, D]`, α `[H]`."""
    gate = torch.tanh(attn.xsa_alpha).to(y.dtype)[:, None]
    return y + gate * (exclude_own_value(attn, y, v, x) - y)


@technique("gated_xsa")
@dataclass
class GatedXSA(Technique):
    """α is zero at the start, so that training begins without the exclusion, unlike with `xsa`."""

    source = "arXiv 2603.09078; PR #2018"
    variables = (Variable("GATED_XSA", selects=True, instead_of="xsa"),)
    conflicts = ("xsa",)
    groups = (("*.attn.xsa_alpha", "scalar"),)
    control_names = ("*.attn.xsa_alpha",)

    def edit_model(self, model: GPT, cfg: Config) -> None:
        """Add α and the hook to every layer."""
        for controls in model.controls:
            controls.attn.xsa_alpha = nn.Parameter(torch.zeros(cfg.model.num_heads))
            controls.attn.output_hooks["exclude"].append(exclude_by_gate)
