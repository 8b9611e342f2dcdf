"""Floating-point operations of a training step, by the convention of MFU figures (PaLM, arXiv 2204.02311, appendix B).

A matrix weight takes 6 operations a token, 2 forward and 4 backward; a layer that runs twice counts twice. Causal
attention takes 6·T·H·D a layer and token: scores and values over an average context of T/2, times 3 with the backward
pass. That is half of PaLM's figure, which is not causal. Norms, rotary embedding, softmax and optimizer are left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from torch import nn

from golf.challenge import CASEOPS_TOKENS, VALIDATION_TOKENS
from golf.settings.config import Config, eval_seq_len, mean_seq_len
from golf.training.model.gpt import GPT


class FlopsPerToken(NamedTuple):
    """Training operations for each token at the end of the run, when late recurrence is on."""

    matmul: float
    attention: float

    @property
    def total(self) -> float:
        """Return the sum of both."""
        return self.matmul + self.attention


def flops_per_token(cfg: Config, model: GPT) -> FlopsPerToken:
    """Return the operations of `model`, which may be on the meta device, at the training's mean length of sequences."""
    layers = layer_order(model, model.active_in_scoring)
    weights = multiplied_weights(model, layers)
    # Heads share model_dim, so their number does not count; keys and values are read by every query head.
    attending = sum(hasattr(model.blocks[layer], "attn") for layer in layers)
    attention = 6.0 * mean_seq_len(cfg) * cfg.model.model_dim * attending
    return FlopsPerToken(6.0 * weights, attention)


def multiplied_weights(model: GPT, layers: Sequence[int]) -> int:
    """Return the weights that a token is multiplied by on its way through `layers` and the head."""
    # A tied head multiplies by the embedding, which is no nn.Linear.
    weights = 0 if model.lm_head is not None else model.tok_emb.weight.numel()
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            weights += module.weight.numel() * _uses(model, name, layers)
    return weights


def _uses(model: GPT, name: str, layers: Sequence[int]) -> int:
    """Return how often the linear layer `name` is used on the way through `layers`."""
    place = re.match(r"blocks\.(\d+)\.(further_mlps\.(\d+)|mlp)?", name)
    if not place:
        return 1
    block, visits = model.blocks[int(place[1])], layers.count(int(place[1]))
    if place[3]:
        # The MLP of the visit after those before it, in one order of layers or not at all.
        return int(visits > int(place[3]) + 1)
    return min(visits, 1) if place[2] and block.further_mlps else visits


def flops_per_scored_token(cfg: Config, model: GPT, stride: int = 0) -> float:
    """Return the forward operations for each scored token.

    With a `stride` the body reads all T tokens of a window to score `stride` of them; the head reads the scored ones.
    """
    seq_len, training = eval_seq_len(cfg), flops_per_token(cfg, model)
    head = 2.0 * cfg.model.vocab_size * cfg.model.model_dim
    # A third of the training operations is the forward pass; the head is taken out, as it reads fewer tokens.
    body = training.matmul / 3 - head + training.attention / 3 * seq_len / mean_seq_len(cfg)
    return body * (seq_len / stride if stride else 1.0) + head


def challenge_tokens(cfg: Config) -> int:
    """Return the tokens of the challenge's validation split under a vocabulary of the size that `cfg` has.

    For other sizes than the public ones they are those of the nearest one.
    """
    nearest = min(VALIDATION_TOKENS, key=lambda size: abs(math.log(size / cfg.data.vocab_size)))
    return round(VALIDATION_TOKENS[nearest] * (CASEOPS_TOKENS if cfg.data.byte_sidecar else 1.0))


def layer_order(model: GPT, active: Sequence[str]) -> list[int]:
    """Return the block indices in the order in which the model runs them while the switches `active` are on."""
    return [visit.block for visit in model.routes.when(active)]
