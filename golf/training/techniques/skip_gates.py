"""Gated U-net skips: a learned gate per channel blends the stored output with the stream, instead of adding it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from golf.errors import GolfError
from golf.settings.config import Config
from golf.training.model.gpt import GPT
from golf.training.techniques.base import Technique, technique


def join_gated(model: GPT, x: Tensor, stored: Tensor, i: int) -> Tensor:
    """Return g·x + (1-g)·w⊙stored with g = σ(gate), before the i-th block of the second half."""
    weighted = model.skip_weights[i].to(x.dtype) * stored
    return torch.lerp(weighted, x, torch.sigmoid(model.skip_gates[i].to(x.dtype)).expand_as(x))


@technique("skip_gates")
@dataclass
class SkipGates(Technique):
    source = "record 2026-04-01_Vocab4096_MLPMult4_WD085"
    stage = 1  # after techniques that change the number of skips
    groups = (("skip_gates", "scalar"),)
    control_names = ("skip_gates",)

    def check(self, cfg: Config) -> None:
        if not cfg.model.unet_skips:
            raise GolfError("skip_gates needs skips to gate: set model.unet_skips=true or drop skip_gates.")

    def edit_model(self, model: GPT, cfg: Config) -> None:
        model.skip_gates = nn.Parameter(torch.zeros_like(model.skip_weights))
        model.join_skip = join_gated
