"""Differential attention: each head subtracts a share of a second softmax map from its first one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from golf.errors import GolfError
from golf.settings.config import Config
from golf.training.model.attention import CausalSelfAttention, attend_to_all
from golf.training.model.documents import TABLE
from golf.training.model.gpt import GPT
from golf.training.model.layers import Context, rms_norm
from golf.training.model.slots import set_slot
from golf.training.techniques.base import Technique, technique

Core = Callable[[CausalSelfAttention, Tensor, Tensor, Tensor, Context], Tensor]
INIT_STD = 0.1  # of the vectors that λ is computed from


def second_half(channels: int, turning: int, device: torch.device) -> Tensor:
    """Return whether each channel of a head belongs to its second map, bool `[D]`: half of them do.

    Of the `turning` channels j and j + turning/2 turn together, so they stay together; pairs go to the maps in turn,
    which spreads the frequencies over both.
    """
    place, pairs = torch.arange(channels, device=device), turning // 2
    # The first map has one pair more if their number is odd, and fewer of the channels that do not turn.
    still_of_first = channels // 2 - 2 * ((pairs + 1) // 2)
    return torch.where(place < turning, place % max(pairs, 1) % 2 == 1, place >= turning + still_of_first)


def base_share(layer: int) -> float:
    """Return λ₀ = 0.8 − 0.6·exp(−0.3·layer) of a layer, counted from 0."""
    return 0.8 - 0.6 * math.exp(-0.3 * layer)


def share_of_second(vectors: Tensor, base: float) -> Tensor:
    """Return λ = exp(q₁·k₁) − exp(q₂·k₂) + λ₀, a float32 or float64 number, for rows q₁, k₁, q₂, k₂ `[4, D/2]`."""
    q1, k1, q2, k2 = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    return torch.exp(q1 @ k1) - torch.exp(q2 @ k2) + base


def attend_twice(
    attn: CausalSelfAttention,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    context: Context,
    *,
    within: Core | None,
    base: float,
) -> Tensor:
    """Return (1 − λ₀)·norm(A₁v − λA₂v) `[B, T, H, D]`, with `within` the attention within documents.

    A₁ and A₂ are the softmax maps of a head's two halves at scale 1/√(D/2). `q` is `[B, T, H, D]`, `k` and `v`
    `[B, T, K, D]`.
    """
    attend = within if within and TABLE in context.shared else attend_to_all
    second = second_half(q.size(-1), 2 * context.cos.size(-1), q.device)
    # A query without the other half's channels gives the scores of its own half, by any kernel. That divides by √D.
    queries = q * math.sqrt(2)
    first, other = (attend(attn, queries * half.to(q.dtype), k, v, context) for half in (~second, second))
    share = share_of_second(attn.differential, base).to(first.dtype)
    return rms_norm(first - share * other) * (1 - base)


@technique("differential_attention")
@dataclass
class DifferentialAttention(Technique):
    """Every layer has one λ for all its heads, which is λ₀ at the start but for its random vectors."""

    source = "arXiv 2410.05258; PR #932"
    # The slot `core` of attention holds one thing.
    conflicts = ("attention_sink",)
    groups = (("*.attn.differential", "scalar"),)
    control_names = ("*.attn.differential",)

    def check(self, cfg: Config) -> None:
        """Refuse heads that cannot be halved without parting channels that turn together."""
        channels = cfg.model.model_dim // cfg.model.num_heads
        if channels % 4:
            raise GolfError(
                f"tech.differential_attention halves each head's {channels} channels into pairs that turn together: "
                "choose model.model_dim and model.num_heads so that a head has a multiple of four."
            )

    def edit_model(self, model: GPT, cfg: Config) -> None:
        """Add the vectors of λ to every layer, which its repeated visits share, and set its core."""
        within = model.separators[0] if model.separators else None
        for layer, block in enumerate(model.blocks):
            width = cfg.model.model_dim // cfg.model.num_heads // 2
            block.attn.differential = nn.Parameter(torch.empty(4, width).normal_(std=INIT_STD))
            core = partial(attend_twice, within=within, base=base_share(layer))
            set_slot(block.attn, "core", core, self.name)
