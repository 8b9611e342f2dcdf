"""Norms of layer i (from 0) scaled by 1/√(i+1), for attention and MLP alike. Constant, no parameters."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from golf.settings.config import Config
from golf.training.model.gpt import GPT
from golf.training.techniques.base import Technique, technique


@technique("ln_scale")
@dataclass
class LNScale(Technique):
    """It scales what enters a sublayer: the attention's values by f, a squared activation's output by f²."""

    source = "PR #374"

    def edit_model(self, model: GPT, cfg: Config) -> None:
        for i, block in enumerate(model.blocks):
            factor = (i + 1) ** -0.5
            block.attn_norm = dataclasses.replace(block.attn_norm, factor=factor)
            block.mlp_norm = dataclasses.replace(block.mlp_norm, factor=factor)
