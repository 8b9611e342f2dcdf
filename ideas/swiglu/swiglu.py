"""SwiGLU in place of the squared-ReLU MLP."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from golf.errors import GolfError
from golf.settings.config import Config, mlp_hidden
from golf.training.model.gpt import GPT
from golf.training.model.layers import CastedLinear
from golf.training.model.slots import set_slot
from golf.training.techniques.base import Technique, technique


class GatedMLP(nn.Module):
    """W_d(silu(W_g x) ⊙ W_u x); W_d starts at zero. W_u is named `fc` and W_d `proj`, as in the plain MLP."""

    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.gate = CastedLinear(dim, hidden)
        self.fc = CastedLinear(dim, hidden)
        self.proj = CastedLinear(hidden, dim, zero_init=True)

    def forward(self, x: Tensor, active: tuple[str, ...] = ()) -> Tensor:
        return self.proj(F.silu(self.gate(x, active)) * self.fc(x, active), active)


@technique("swiglu")
@dataclass
class SwiGLU(Technique):
    """Three matrices. At 2/3 of the configured hidden width they have as many parameters as the two before them."""

    source = "arXiv 2002.05202; tried in 2026-03-19_SwiGLU, beside the records"
    conflicts = ("leaky_relu",)
    groups = (("*.mlp.gate.weight", "matrix"),)

    hidden_ratio: float = 2 / 3  # share of the configured hidden width

    def check(self, cfg: Config) -> None:
        if self.hidden_ratio * mlp_hidden(cfg.model) < 1:
            raise GolfError("tech.swiglu.hidden_ratio leaves no hidden channel: make it larger.")

    def edit_model(self, model: GPT, cfg: Config) -> None:
        for block in model.blocks:
            mlp = GatedMLP(cfg.model.model_dim, int(mlp_hidden(cfg.model) * self.hidden_ratio))
            set_slot(block, "mlp", mlp, self.name)
