"""Norms of layer i (from 0) scaled by 1/√(i+1), for attention and MLP alike. Constant, no parameters."""

from __future__ import annotations

from dataclasses import dataclass

from golf.registry import Variable
from golf.settings.config import Config
from golf.training.model.gpt import GPT
from golf.training.model.slots import set_fields
from golf.training.techniques.base import Technique, technique


@technique("ln_scale")
@dataclass
class LNScale(Technique):
    """The factor f of a norm scales the attention's values by f and a squared activation's output by f²."""

    source = "PR #315"
    variables = (Variable("LN_SCALE", selects=True),)

    def edit_model(self, model: GPT, cfg: Config) -> None:
        for i, controls in enumerate(model.controls):
            factor = (i + 1) ** -0.5
            set_fields(controls, "attn_norm", self.name, factor=factor)
            set_fields(controls, "mlp_norm", self.name, factor=factor)
