"""The outputs of attention and of the MLP's hidden layer are normalised before their last matrix (sub-LN)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from golf.settings.config import Config
from golf.training.model.attention import CausalSelfAttention
from golf.training.model.gpt import GPT
from golf.training.model.layers import MLP, rms_norm
from golf.training.model.slots import set_slot
from golf.training.techniques.base import Technique, technique


def normalized_heads(attn: CausalSelfAttention, y: Tensor, v: Tensor, x: Tensor) -> Tensor:
    """Scale the heads' outputs `y` `[B, T, H, D]` to unit RMS over all heads of a token."""
    return rms_norm(y.flatten(2)).view_as(y)


def expand_norm_and_contract(mlp: MLP, x: Tensor, active: tuple[str, ...]) -> Tensor:
    """Return W₂ · norm(activation(W₁x)) `[..., d]`."""
    return mlp.proj(rms_norm(mlp.activation(mlp.fc(x, active))), active)


@technique("sub_norm")
@dataclass
class SubNorm(Technique):
    """Matrices of -1, 0 and 1 read inputs of one size with it. The norms have no parameters."""

    source = "Magneto, arXiv 2210.06423; BitNet, arXiv 2310.11453; PR #640"
    conflicts = ("swiglu", "soft_experts", "seeded_maps")

    def edit_model(self, model: GPT, cfg: Config) -> None:
        """Normalise behind all other hooks of the heads, and within every MLP."""
        for block in model.controls:
            block.attn.output_hooks["gate"].append(normalized_heads)
        for block in model.blocks:
            for mlp in block.mlps():
                set_slot(mlp, "compute", expand_norm_and_contract, self.name)
