"""YaRN: rotary frequencies of a longer context, the slow ones divided and the fast ones kept, from the first step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from golf.settings.config import Config
from golf.settings.fields import number
from golf.training.model.gpt import GPT
from golf.training.model.rotary import Rotary
from golf.training.model.slots import set_slot
from golf.training.techniques.base import Technique, technique

KEPT = 0.25  # share of the channels, the fastest, whose frequencies stay


@dataclass(frozen=True)
class YarnRotary(Rotary):
    """Frequencies ω_j / (1 + r_j·(factor - 1)) with r_j = max(0, (2j / dims - ¼) / ¾)."""

    factor: float = 2.0

    def frequencies(self, seq_len: int, device: torch.device) -> Tensor:
        """Return the radians per token of every pair of channels, float32 `[dims/2]`."""
        place = torch.arange(0, self.dims, 2, dtype=torch.float32, device=device) / self.dims
        ramp = ((place - KEPT) / (1 - KEPT)).clamp(min=0)
        return super().frequencies(seq_len, device) / (1 + ramp * (self.factor - 1))


@technique("yarn")
@dataclass
class Yarn(Technique):
    """YaRN in the form of the record: a ramp over channels, not wavelengths, and no scale on the logits."""

    source = "YaRN, arXiv 2309.00071; PR #640"
    conflicts = ("partial_rope",)

    factor: float = number(2.0, above=1)  # longest context over that of the training; 2 is 2048 over 1024

    def edit_model(self, model: GPT, cfg: Config) -> None:
        """Set the rotary embedding."""
        rotary = YarnRotary(model.rotary.dims, model.rotary.base, factor=self.factor)
        set_slot(model, "rotary", rotary, self.name)
