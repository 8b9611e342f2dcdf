"""Gated U-net skips: a learned gate per channel blends the stored output with the stream, instead of adding it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from golf.errors import GolfError
from golf.registry import Variable
from golf.settings.config import Config
from golf.training.model.gpt import GPT
from golf.training.model.slots import set_slot
from golf.training.techniques.base import Technique, technique


def join_gated(model: GPT, x: Tensor, skip: Tensor, row: int) -> Tensor:
    """Return g·x + (1-g)·w⊙skip with g = σ(gate)."""
    weighted = model.skip_row("skip_weights", row).to(x.dtype) * skip
    return torch.lerp(weighted, x, torch.sigmoid(model.skip_row("skip_gates", row).to(x.dtype)).expand_as(x))


@technique("skip_gates")
@dataclass
class SkipGates(Technique):
    source = "PR #1089"
    variables = (Variable("SKIP_GATES_ENABLED", selects=True),)
    groups = (("skip_gates", "scalar"), ("late_skip_gates", "scalar"))
    control_names = ("skip_gates",)

    def check(self, cfg: Config) -> None:
        if not cfg.model.unet_skips:
            raise GolfError("skip_gates needs skips to gate: set model.unet_skips=true or drop skip_gates.")

    def edit_model(self, model: GPT, cfg: Config) -> None:
        model.add_skip_rows("skip_gates", 0.0)
        set_slot(model, "join_skip", join_gated, self.name)
