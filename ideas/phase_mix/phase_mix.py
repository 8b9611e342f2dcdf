"""Phase initialisation of the residual mix: early layers start from the embedding, late ones from the stream."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from golf.settings.config import Config
from golf.training.model.gpt import GPT
from golf.training.techniques.base import CHANGES_INIT, Technique, technique


@technique("phase_mix")
@dataclass
class PhaseMix(Technique):
    """Layer i of L starts with m₀ = σ(3(i/(L-1) - ½)) on the stream and 1 - m₀ on the embedding output."""

    effect = CHANGES_INIT
    source = "record 2026-03-19_SlidingWindow_FP16Emb_10L_MuonWD_OvertoneInit; PR #569"

    sharpness: float = 3.0

    @torch.no_grad()
    def edit_model(self, model: GPT, cfg: Config) -> None:
        # A model of one layer would divide by zero.
        last = max(len(model.controls) - 1, 1)
        for i, block in enumerate(model.controls):
            stream = 1 / (1 + math.exp(-self.sharpness * (i / last - 0.5)))
            block.resid_mix[0].fill_(stream)
            block.resid_mix[1].fill_(1 - stream)
