"""LeakyReLU² in place of ReLU² in the MLP: x² for x > 0, (slope·x)² below."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from golf.registry import Variable
from golf.settings.config import Config
from golf.training.model.gpt import GPT
from golf.training.model.slots import set_slot
from golf.training.techniques.base import Technique, technique


@dataclass(frozen=True)
class LeakyReluSquared:
    slope: float

    def __call__(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x, self.slope).square()


@technique("leaky_relu")
@dataclass
class LeakyRelu(Technique):
    source = "PR #493"
    variables = (
        Variable("NEGATIVE_SLOPE", "slope", selects=True),
        Variable("LEAKY_RELU_SLOPE", "slope", selects=True),
        Variable("LEAKY_RELU_SQ_SLOPE", "slope", selects=True),
    )
    conflicts = ("swiglu",)

    slope: float = 0.5

    def edit_model(self, model: GPT, cfg: Config) -> None:
        for block in model.blocks:
            set_slot(block.mlp, "activation", LeakyReluSquared(self.slope), self.name)
