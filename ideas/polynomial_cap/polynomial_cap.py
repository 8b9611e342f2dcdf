"""A polynomial of degree five caps the logits, in place of tanh."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from golf.settings.config import Config
from golf.training.model.gpt import GPT
from golf.training.model.slots import set_slot
from golf.training.techniques.base import Technique, technique


def polynomial_cap(logits: Tensor, cap: float) -> Tensor:
    """Return cap·clamp(u - u³/3 + u⁵/15, ±1) of u = clamp(logits / cap, ±2), which is ±cap from |u| = 1.690 on."""
    u = (logits / cap).clamp(-2, 2)
    square = u * u
    return cap * (u * (1 - square / 3 + square * square / 15)).clamp(-1, 1)


@technique("polynomial_cap")
@dataclass
class PolynomialCap(Technique):
    """tanh's series ends in 2u⁵/15. Beyond the cap no gradient is left, where tanh leaves a little."""

    source = "PR #640"

    def edit_model(self, model: GPT, cfg: Config) -> None:
        """Set the cap."""
        set_slot(model, "cap", polynomial_cap, self.name)
