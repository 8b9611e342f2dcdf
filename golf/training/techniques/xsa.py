"""Exclusive self-attention: what a position attends to, less the part that its own value explains."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from golf.errors import GolfError
from golf.registry import Variable
from golf.settings.config import Config
from golf.training.model.attention import CausalSelfAttention
from golf.training.model.gpt import GPT
from golf.training.techniques.base import Technique, technique

NORM_EPS = 1e-12


def exclude_own_value(attn: CausalSelfAttention, y: Tensor, v: Tensor, x: Tensor) -> Tensor:
    """Return y - (y·v̂)v̂ per head: `y` `[B, T, H, D]`, `v` `[B, T, K, D]`; a group of H/K heads shares its v."""
    # [B, T, K, 1, D]: one direction for all query heads that share a value.
    unit = F.normalize(v, dim=-1, eps=NORM_EPS).unsqueeze(3)
    grouped = y.reshape(*v.shape[:3], -1, v.size(-1))  # [B, T, K, g, D]
    return (grouped - (grouped * unit).sum(-1, keepdim=True) * unit).view(y.shape)


@technique("xsa")
@dataclass
class XSA(Technique):
    """The value is excluded on the last `last_n` layers, or on all."""

    source = "arXiv 2603.09078; PR #265 (last layers)"
    variables = (
        Variable("XSA_LAST_N", "last_n", selects=True),
        Variable("XSA_LAYERS", lambda value: {"last_n": "null" if value == "all" else int(value)}, selects=True),
    )

    last_n: int | None = 4  # null = all layers

    def check(self, cfg: Config) -> None:
        if self.last_n is not None and self.last_n < 1:
            raise GolfError("tech.xsa.last_n has to be at least 1; drop=[xsa] takes it out, null means all layers.")

    def edit_model(self, model: GPT, cfg: Config) -> None:
        first = 0 if self.last_n is None else max(0, len(model.controls) - self.last_n)
        for controls in model.controls[first:]:
            controls.attn.output_hooks["exclude"].append(exclude_own_value)
