"""Gated attention: every head's output times a sigmoid gate computed from the layer's input."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from golf.errors import GolfError
from golf.registry import Variable
from golf.settings.config import Config
from golf.settings.fields import later, number, one_of
from golf.training.model.attention import CausalSelfAttention
from golf.training.model.gpt import GPT
from golf.training.techniques.base import Technique, technique

OUTPUT_GATE = {"bias": "null", "window": 12, "multiplier": 2}
EDITS_QUERIES = ("fused_qkv", "fake_quant", "soft_round")  # techniques under which `c_q.weight` is not what queries see


@dataclass(frozen=True)
class HeadGate:
    """Output hook: multiply `y` `[B, T, H, D]` by m·σ(s·(W·x + b)) `[B, T, H]`, with m and s constants."""

    settings: GatedAttention

    def __call__(self, attn: CausalSelfAttention, y: Tensor, v: Tensor, x: Tensor) -> Tensor:
        linear = attn.attn_gate
        if self.settings.reads == "queries":
            # Only the queries' channels that the gate reads are computed again.
            x = F.linear(x, attn.c_q.weight[: linear.in_features].to(x.dtype))
        else:
            x = x[..., : linear.in_features]
        bias = None if linear.bias is None else linear.bias.to(x.dtype)
        argument = F.linear(x, linear.weight.to(x.dtype), bias)
        # Settings are constants to a compiler, so a factor of 1 leaves no operation in the graph.
        if self.settings.scale != 1.0:
            argument = argument * self.settings.scale
        gate = torch.sigmoid(argument)
        if self.settings.multiplier != 1.0:
            gate = gate * self.settings.multiplier
        return y * gate[..., None]


@technique("gated_attention")
@dataclass
class GatedAttention(Technique):
    """The gate comes after exclusive self-attention and before the output projection. Adam trains it, not Muon.

    The defaults are those of PR #413, nearly open at the start: σ(4) = 0.982. Records have three other gates, all
    without bias: m·σ(s·W·x) over the first `window` channels of x.

    | record | settings | gate at the start |
    |---|---|---|
    | 2026-04-16 (attention output gate) | bias null, window 12, multiplier 2 | 1 |
    | 2026-04-19, 04-22 (unbiased gate) | bias null, init_std 0.005 | about ½ |
    | 2026-04-23 to 04-29 (sparse gate) | bias null, window 12; scale 0.5 in the record of 1.0611 | ½ |
    """

    source = "arXiv 2505.06708; PR #413; records 2026-04-16, 2026-04-19, 2026-04-23"
    variables = (
        Variable("GATED_ATTENTION", selects=True),
        Variable("ATTN_OUT_GATE_ENABLED", lambda value: OUTPUT_GATE, selects=True),
        Variable("GATE_ATTN_OUT", lambda value: OUTPUT_GATE, selects=True),
        Variable("GATED_ATTN_ENABLED", lambda value: {"bias": "null", "init_std": 0.01}, selects=True),
        Variable("SPARSE_ATTN_GATE_ENABLED", lambda value: {"bias": "null", "window": 12}, selects=True),
        Variable("GATED_ATTN_INIT_STD", "init_std"),
        Variable("SPARSE_ATTN_GATE_INIT_STD", "init_std"),
        Variable("SPARSE_ATTN_GATE_SCALE", "scale"),
        Variable("GATE_WINDOW", "window"),
        Variable("GATE_WIDTH", "window"),
    )
    by_layer = True
    groups = (("*.attn.attn_gate.*", "scalar"),)
    control_names = ("*.attn.attn_gate.*",)

    bias: float | None = later(4.0)  # bias at the start; null = no bias
    window: int | None = later(number(None, at_least=1))  # channels that the gate reads, from the first on; null = all
    scale: float = later(number(1.0, above=0))  # factor on the sigmoid's argument
    multiplier: float = later(number(1.0, above=0))  # factor on the sigmoid; with 2 and no bias the gate starts at 1
    init_std: float = later(number(0.0, at_least=0))  # standard deviation of the gate's weights at the start
    # what the gate reads; input: the layer's normalised input | queries: the projected queries, before their norm
    reads: str = later(one_of("input", "queries"))

    def check(self, cfg: Config) -> None:
        if self.window is not None and self.window > cfg.model.model_dim:
            raise GolfError(
                f"tech.gated_attention.window={self.window} is wider than the model's {cfg.model.model_dim} channels: "
                "choose a smaller one, or null for all."
            )
        if self.reads == "queries" and (rivals := [name for name in EDITS_QUERIES if name in cfg.tech]):
            raise GolfError(
                f"tech.gated_attention.reads=queries reads the queries' matrix itself, which {rivals[0]} changes: "
                f"use reads=input or drop {rivals[0]}."
            )

    def edit_model(self, model: GPT, cfg: Config) -> None:
        for block in model.blocks:
            gate = nn.Linear(self.window or cfg.model.model_dim, cfg.model.num_heads, bias=self.bias is not None)
            nn.init.normal_(gate.weight, std=self.init_std) if self.init_std else nn.init.zeros_(gate.weight)
            if self.bias is not None:
                nn.init.constant_(gate.bias, self.bias)
            block.attn.attn_gate = gate
            block.attn.output_hooks["gate"].append(HeadGate(self))
