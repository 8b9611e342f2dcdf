"""Value residual learning: the first layer's values mixed into those of every later layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from golf.errors import GolfError
from golf.registry import Variable
from golf.settings.config import Config
from golf.settings.fields import one_of
from golf.training.model.attention import CausalSelfAttention
from golf.training.model.gpt import GPT
from golf.training.model.layers import Context
from golf.training.techniques.base import Technique, technique

SHARED_KEY = "first_values"


def keep_values(attn: CausalSelfAttention, v: Tensor, context: Context) -> Tensor:
    """Keep `v` `[B, T, K, D]` for later layers, and return it."""
    # With recurrence the first layer may run again, and its first values stay.
    context.shared.setdefault(SHARED_KEY, v)
    return v


def mix_lambda(attn: CausalSelfAttention, v: Tensor, context: Context) -> Tensor:
    """Return λ₀·V₀ + λ₁·v."""
    weights = attn.vr_lambda.to(v.dtype)
    return weights[0] * context.shared[SHARED_KEY] + weights[1] * v


def mix_sigmoid(attn: CausalSelfAttention, v: Tensor, context: Context) -> Tensor:
    """Return v + σ(α)·V₀."""
    return v + torch.sigmoid(attn.vr_alpha.to(v.dtype)) * context.shared[SHARED_KEY]


@technique("value_residual")
@dataclass
class ValueResidual(Technique):
    """`lambda` mixes by two weights a layer (0.5 and 0.5), `sigmoid` adds through a gate (0.5). Layer 0 has neither."""

    source = "arXiv 2410.17897; lambda PR #413, sigmoid PR #569"
    variables = (Variable("VALUE_RESIDUAL", selects=True),)
    by_layer = True
    groups = (
        ("*.attn.vr_lambda", "scalar"),
        ("*.attn.vr_alpha", "scalar"),
    )
    control_names = ("*.attn.vr_lambda", "*.attn.vr_alpha")

    mode: str = one_of("lambda", "sigmoid")

    def check(self, cfg: Config) -> None:
        if cfg.model.num_layers < 2:
            raise GolfError("tech.value_residual mixes values across layers: it needs a model of at least two.")

    def warnings(self, cfg: Config) -> list[str]:
        if "value_embed" not in cfg.tech:
            return []
        return ["value_residual is redundant with value_embed: +0.0008 bpb together (PR #670), drop one of them"]

    def edit_model(self, model: GPT, cfg: Config) -> None:
        first, *later = (block.attn for block in model.blocks)
        first.value_hooks["mix"].append(keep_values)
        for attn in later:
            if self.mode == "lambda":
                attn.vr_lambda = nn.Parameter(torch.tensor([0.5, 0.5]))
                attn.value_hooks["mix"].append(mix_lambda)
            else:
                attn.vr_alpha = nn.Parameter(torch.zeros(1))
                attn.value_hooks["mix"].append(mix_sigmoid)
