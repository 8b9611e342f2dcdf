"""Attention sink: every head has a learned logit in its softmax's denominator, so that it may attend to nothing."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from golf.settings.config import Config
from golf.training.model.attention import CausalSelfAttention
from golf.training.model.documents import PIECES
from golf.training.model.gpt import GPT
from golf.training.model.layers import Context
from golf.training.model.slots import set_slot
from golf.training.techniques.base import Technique, technique


def seen_places(tokens: int, context: Context, device: torch.device) -> Tensor:
    """Return whether a query (rows) may see a key (columns), `[T, T]`, or `[B, 1, T, T]` within documents."""
    place = torch.arange(tokens, device=device)
    seen = place[:, None] >= place
    starts = context.shared.get(PIECES)
    if starts is None:
        return seen
    # Tokens of one piece have one start, whose index is that of the flat batch.
    starts = starts.view(-1, tokens)
    return (seen & (starts[:, :, None] == starts[:, None, :]))[:, None]


def attend_beside_sink(attn: CausalSelfAttention, q: Tensor, k: Tensor, v: Tensor, context: Context) -> Tensor:
    """Return Σ_j exp(z_ij) v_j / (exp(s) + Σ_j exp(z_ij)) `[B, T, H, D]`, z the scores and s `[H]` the sinks.

    `q` is `[B, T, H, D]`, `k` and `v` `[B, T, K, D]`.
    """
    k, v = (t.repeat_interleave(q.size(2) // k.size(2), dim=2) for t in (k, v))
    scores = torch.einsum("bthd,bshd->bhts", q, k) / q.size(-1) ** 0.5
    # Sums over a row of bf16 would lose the sink beside many tokens.
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    scores = scores.masked_fill(~seen_places(q.size(1), context, q.device), float("-inf"))
    sinks = attn.sink.to(scores.dtype)[:, None, None].expand(*scores.shape[:3], 1)
    # With LSE the log-sum-exp of the scores this is σ(LSE − s) times their softmax.
    shares = torch.cat((scores, sinks), dim=-1).softmax(dim=-1)[..., :-1]
    return torch.einsum("bhts,bshd->bthd", shares.to(v.dtype), v)


@technique("attention_sink")
@dataclass
class AttentionSink(Technique):
    """A sink is zero at the start, like the score of one more key that is orthogonal to every query."""

    source = "PR #1895"
    groups = (("*.attn.sink", "scalar"),)
    control_names = ("*.attn.sink",)

    def edit_model(self, model: GPT, cfg: Config) -> None:
        """Add the sinks to every layer, which its repeated visits share."""
        for block in model.blocks:
            block.attn.sink = nn.Parameter(torch.zeros(cfg.model.num_heads))
            set_slot(block.attn, "core", attend_beside_sink, self.name)
