"""Floating-point operations of a training step, by the convention of MFU figures (PaLM, arXiv 2204.02311, appendix B).

A matrix weight takes 6 operations a token, 2 forward and 4 backward; a layer that runs twice counts twice. Causal
attention takes 6·T·H·D a layer and token: scores and values over an average context of T/2, times 3 with the backward
pass. That is half of PaLM's figure, which is not causal. Norms, rotary embedding, softmax and optimizer are left out.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from torch import nn

from golf.challenge import CASEOPS_TOKENS, VALIDATION_TOKENS
from golf.lab.plan.counted_flops import count_pass, outside, unsaid
from golf.settings.config import Config, eval_seq_len, mean_seq_len, scored_config
from golf.training.model.build import shapeless_model
from golf.training.model.gpt import GPT
from golf.training.model.routed import RoutedBlock


class PassFlops(NamedTuple):
    """Operations of a pass for each token at the end of the run, when late recurrence is on."""

    matmul: float  # whatever the length of the row
    attention_slope: float  # for each token of a row, of which causal attention sees half
    unknown: str = ""  # sentence about modules whose operations are left out

    def attention(self, seq_len: float) -> float:
        """Return the operations of attention for each token of a row of `seq_len`."""
        return self.attention_slope * seq_len


class FlopsPerToken(NamedTuple):
    """Training operations for each token at the end of the run, when late recurrence is on."""

    matmul: float
    attention: float
    unknown: str = ""  # sentence about modules whose operations are left out

    @property
    def total(self) -> float:
        """Return the sum of both."""
        return self.matmul + self.attention


def flops_per_token(cfg: Config, model: GPT) -> FlopsPerToken:
    """Return the operations of `model`, which may be on the meta device, at the training's mean length of sequences."""
    step = pass_flops(cfg, model, model.active_in_scoring)
    return FlopsPerToken(step.matmul, step.attention(mean_seq_len(cfg)), step.unknown)


def pass_flops(cfg: Config, model: GPT, active: Sequence[str], *, trains: bool = True) -> PassFlops:
    """Return the operations of a pass of `model` with the switches `active`: forward, and backward if it `trains`.

    They follow the formulas, or are counted by torch for a model with techniques from outside golf.
    """
    layers, times = layer_order(model, active), 3 if trains else 1
    # Heads share model_dim, so their number does not count; keys and values are read by every query head.
    slope = 2.0 * cfg.model.model_dim * sum(hasattr(model.blocks[layer], "attn") for layer in layers)
    told = PassFlops(2.0 * times * multiplied_weights(model, layers), times * slope)
    if not (names := outside(cfg)):
        return told
    try:
        return _counted(cfg, tuple(active), trains)
    # A module from outside may raise anything.
    except Exception as error:
        kinds = ", ".join(unsaid(model)) or ", ".join(names)
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        return told._replace(unknown=f"the operations of {kinds} are unknown ({why}): define flops_per_token there")


def _counted(cfg: Config, active: tuple[str, ...], trains: bool) -> PassFlops:
    """Return the operations that torch counts at two lengths of a row."""
    # Built without numbers, as the given model need not be; training alone has what no score reads. Attention is over
    # whole rows, because the plain one within documents computes what a kernel leaves out.
    cfg = dataclasses.replace(cfg, model=dataclasses.replace(cfg.model, within_documents=False))
    model = shapeless_model(cfg if trains else scored_config(cfg))
    longest = mean_seq_len(cfg) if trains else eval_seq_len(cfg)
    shorter = max(longest // 2, 1)
    short, long = (count_pass(model, n, active, trains=trains).flops for n in (shorter, longest))
    # Operations of a token are a line over the length of its row: matmul + slope · length.
    slope = (long - short) / (longest - shorter) if longest > shorter else 0.0
    return PassFlops(long - slope * longest, slope)


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
    if not (place := re.match(r"blocks\.(\d+)\.(further_mlps\.(\d+)|mlp)?", name)):
        return 1
    block, visits = model.blocks[int(place[1])], layers.count(int(place[1]))
    if place[3]:
        # `further_mlps.<n>` serves visit n + 2 of its block, so it runs once if the block is visited that often.
        return int(visits > int(place[3]) + 1)
    has_own = isinstance(block, RoutedBlock) and len(block.further_mlps) > 0
    return min(visits, 1) if place[2] and has_own else visits


def flops_per_scored_token(cfg: Config, model: GPT, stride: int = 0) -> float:
    """Return the forward operations for each scored token.

    With a `stride` the body reads all T tokens of a window to score `stride` of them; the head reads the scored ones.
    """
    seq_len, forward = eval_seq_len(cfg), pass_flops(cfg, model, model.active_in_scoring, trains=False)
    head = 2.0 * cfg.model.vocab_size * cfg.model.model_dim
    return (forward.matmul - head + forward.attention(seq_len)) * (seq_len / stride if stride else 1.0) + head


def challenge_tokens(cfg: Config) -> int:
    """Return the tokens of the challenge's validation split under a vocabulary of the size that `cfg` has.

    For other sizes than the public ones they are those of the nearest one.
    """
    nearest = min(VALIDATION_TOKENS, key=lambda size: abs(math.log(size / cfg.data.vocab_size)))
    return round(VALIDATION_TOKENS[nearest] * (CASEOPS_TOKENS if cfg.data.byte_sidecar else 1.0))


def layer_order(model: GPT, active: Sequence[str]) -> list[int]:
    """Return the block indices in the order in which the model runs them while the switches `active` are on."""
    return [visit.block for visit in model.route_when(active)]
