"""Soft mixture of experts: every token passes all of several narrow MLPs, and a router weighs their outputs."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from golf.errors import GolfError
from golf.settings.config import Config, mlp_hidden
from golf.settings.fields import number
from golf.training.model.gpt import GPT
from golf.training.model.layers import MLP, CastedLinear
from golf.training.model.slots import set_slot
from golf.training.techniques.base import Technique, technique


class SoftExperts(nn.Module):
    """Σ_e p_e MLP_e(x) with p = softmax(W_r x) in float32; W_r starts at zero, so that all experts count alike."""

    def __init__(self, dim: int, hidden: int, count: int):
        super().__init__()
        self.experts = nn.ModuleList(MLP(dim, hidden) for _ in range(count))
        self.router = CastedLinear(dim, count, zero_init=True)

    def forward(self, x: Tensor, active: tuple[str, ...] = ()) -> Tensor:
        shares = self.router(x, active).float().softmax(-1).to(x.dtype)
        mixed: Tensor = sum(shares[..., e, None] * expert(x, active) for e, expert in enumerate(self.experts))
        return mixed


@technique("soft_experts")
@dataclass
class SoftMoE(Technique):
    """The experts share the configured hidden width, so that weights and operations stay but for the router's."""

    source = "PR #660"
    conflicts = ("swiglu", "leaky_relu")
    groups = (("*.mlp.experts.*.weight", "matrix"), ("*.mlp.router.weight", "scalar"))

    count: int = number(2, at_least=2)  # experts of a layer

    def check(self, cfg: Config) -> None:
        """Refuse a hidden width that does not divide into the experts."""
        if mlp_hidden(cfg.model) % self.count:
            raise GolfError(
                f"tech.soft_experts.count={self.count} has to divide the MLP's hidden width, {mlp_hidden(cfg.model)}."
            )

    def edit_model(self, model: GPT, cfg: Config) -> None:
        """Replace the MLPs."""
        for block in model.blocks:
            experts = SoftExperts(cfg.model.model_dim, mlp_hidden(cfg.model) // self.count, self.count)
            set_slot(block, "mlp", experts, self.name)
