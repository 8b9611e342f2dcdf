"""Predicted seconds of a sliding score and of test-time training, on H100s over the challenge's validation split.

Each batch of documents, each chunk of text and each phase is counted in floating-point operations, forward and
backward, and divided by what public runs on H100s did a second. Batches go to the ranks as the scoring itself plans
them, so that the wait for the longest documents before a phase is in the time. docs/planning.md compares with public
runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from golf.challenge import VALIDATION_DOCUMENTS
from golf.lab.plan.flops import challenge_tokens, flops_per_scored_token, pass_flops
from golf.lab.plan.step_model import NO_FLASH3
from golf.settings.config import Config, TTTRecipe, eval_seq_len, ttt_recipe, world_size
from golf.training.model.gpt import GPT
from golf.training.scoring.document_queue import QueuedBatch, document_batches, pause_after
from golf.training.scoring.lora import BatchLoRA
from golf.training.scoring.phases import phase_documents
from golf.training.scoring.ttt_lora import lora_segments

# Operations a second on each H100 in public runs, with FA3. SLIDING_FLOPS is from 19 records' sliding scores; ten
# without FA3 did 89e12, but they are the earliest and differ in more than the kernel. LORA_FLOPS is the median of 11
# records from 10 April on. SGD_FLOPS is from four April records, after subtracting the seconds of the sliding score.
# PHASE_FLOPS is from the record of 27 April (1.0611), whose three phases took 75 to 85 s: their batches are small, and
# the code is eager.
SLIDING_FLOPS, LORA_FLOPS, SGD_FLOPS, PHASE_FLOPS = 245e12, 102e12, 26e12, 13e12
# Published over planned seconds of these 11 records, 0.83 to 1.23: equal evaluations took 394 to 520 s.
TTT_SPREAD = (0.8, 1.25)
# Seconds in which a rank finds the n-gram hints of a million targets, which no GPU helps: a pass over tokens alone
# (PR #2140), and the helper of other runs, which also counts within words (139 to 201 s, PR #2135).
HINT_SECONDS, SLOW_HINT_SECONDS = 0.34, 4.2
# Logarithms of the lengths over the mean, by normal deviate z: a body, and a tail from z = 1 on that gives the lengths
# of the documents 464 to 2,960, as the phases of public logs tell them, to 2 %.
BODY_SLOPE, TAIL_SLOPE, TAIL_FROM, TAIL_START = 0.7, 1.24, 1.0, 0.270


class Rates(NamedTuple):
    """Operations that one rank does a second, by what it is doing."""

    lora: float
    sgd: float
    phases: float


class PassCost(NamedTuple):
    """Operations of a forward pass for each token of a window."""

    body: float  # matrices of the blocks
    attention: float  # for each token of context
    head: float  # for each scored target
    factors: float  # low-rank factors


def document_lengths(tokens: int) -> np.ndarray:
    """Return about how many targets the documents of the validation split have, int64 `[50,000]`, `tokens` in all."""
    ranks = (np.arange(VALIDATION_DOCUMENTS) + 0.5) / VALIDATION_DOCUMENTS
    z = np.array([NormalDist().inv_cdf(rank) for rank in ranks.tolist()])
    relative = np.exp(TAIL_START + np.where(z > TAIL_FROM, TAIL_SLOPE, BODY_SLOPE) * (z - TAIL_FROM))
    return np.maximum(np.round(relative * tokens / relative.sum()), 2).astype(np.int64)


def sliding_seconds(cfg: Config, model: GPT, stride: int) -> float:
    """Return the seconds of a sliding score on as many H100s as `cfg` has ranks; `model` may be on the meta device."""
    work = flops_per_scored_token(cfg, model, stride) * challenge_tokens(cfg)
    slower = slower_scores(cfg.model.attention, eval_seq_len(cfg))
    return slower * work / (SLIDING_FLOPS * world_size(cfg)) + hint_seconds(cfg)


def hint_seconds(cfg: Config, per_million: float = HINT_SECONDS) -> float:
    """Return the seconds in which the hints of a tilt are found; 0 without one."""
    return per_million * challenge_tokens(cfg) / 1e6 * (cfg.eval.tilt.method != "off")


def ttt_range(cfg: Config, seconds: float) -> tuple[float, float]:
    """Return the ends of what public machines make of planned `seconds` of test-time training."""
    hints, slow = hint_seconds(cfg), hint_seconds(cfg, SLOW_HINT_SECONDS)
    return TTT_SPREAD[0] * (seconds - hints) + hints, TTT_SPREAD[1] * (seconds - hints) + slow


def ttt_seconds(cfg: Config, model: GPT) -> float:
    """Return the seconds of the test-time training of `cfg` on as many H100s; `model` may be on the meta device."""
    slower = slower_scores(cfg.model.attention, ttt_recipe(cfg).seq_len)
    rates = Rates(LORA_FLOPS / slower, SGD_FLOPS / slower, PHASE_FLOPS / slower)
    seconds = ttt_only_seconds(cfg, model, rates, document_lengths(challenge_tokens(cfg)))
    # Training on chunks comes on top of a sliding score of each.
    is_sgd = cfg.eval.ttt.method == "sgd"
    return seconds + (sliding_seconds(cfg, model, cfg.eval.stride) if is_sgd else hint_seconds(cfg))


def ttt_only_seconds(cfg: Config, model: GPT, rates: Rates, lengths: np.ndarray) -> float:
    """Return the seconds of test-time training at `rates` over documents of `lengths`, int64 `[n]` in targets.

    Low-rank factors score as they train; SGD's sliding score is left out.
    """
    if cfg.eval.ttt.method == "lora":
        return _lora_seconds(cfg, model, rates, lengths)
    trained = cfg.eval.ttt.epochs * int(lengths.sum()) * _step_flops(_pass_cost(cfg, model), ttt_recipe(cfg))
    return trained / (rates.sgd * world_size(cfg))


def slower_scores(attention: str, tokens: int) -> float:
    """Return how many times as long as with flash attention 3 scores in windows of `tokens` take.

    Attention's share of the time alone changes, so the factor is that of a training step with rows of as many tokens.
    """
    return 1.0 if attention == "fa3" else math.exp(NO_FLASH3 * tokens / 2048)


def _lora_seconds(cfg: Config, model: GPT, rates: Rates, lengths: np.ndarray) -> float:
    ttt, recipe, ranks = cfg.eval.ttt, ttt_recipe(cfg), world_size(cfg)
    queue = document_batches(np.stack((np.cumsum(lengths) - lengths, lengths), axis=1), recipe.batch_seqs)
    factors = BatchLoRA(model, 1, ttt, 0)
    cost = _pass_cost(cfg, model)._replace(factors=2.0 * sum(p.numel() for p in factors.registered.parameters()))
    if factors.head_factors is not None:
        cost = cost._replace(head=cost.head + 2.0 * sum(p.numel() for p in factors.head_factors.parameters()))
    seconds, scored = 0.0, list[QueuedBatch]()
    for number, segment in enumerate(lora_segments(queue, ttt, recipe, ranks)):
        if number and ttt.lora_phases.count:
            seconds += _phase_flops(cfg, cost, scored, number) / (rates.phases * ranks)
        lanes = [sum(_batch_flops(batch, ttt.lora_steps, recipe, cost) for batch in lane) for lane in segment]
        # A phase waits for the rank that is busy longest.
        seconds += max(sum(lanes[rank::ranks]) for rank in range(ranks)) / rates.lora
        scored += [batch for lane in segment for batch in lane]
    return seconds


def _batch_flops(batch: QueuedBatch, steps: int, recipe: TTTRecipe, cost: PassCost) -> float:
    """Return the operations of scoring every chunk of a batch's documents and of training on all but each last one."""
    targets = batch.documents[:, 1]
    recipe = recipe._replace(chunk_tokens=recipe.chunk_for(int(targets.max())))
    chunks = -(-targets // recipe.chunk_tokens)
    trained = chunks - 1
    scoring, _ = _forward_flops(chunks, int(targets.sum()), recipe, cost)
    # The weights have no gradients, so a backward pass costs as much as the forward pass; factors have, and cost twice.
    training, factors = _forward_flops(trained, int(trained.sum()) * recipe.chunk_tokens, recipe, cost)
    return scoring + (2 * steps - 1) * training + steps * factors


def _forward_flops(chunks: np.ndarray, targets: int, recipe: TTTRecipe, cost: PassCost) -> tuple[float, float]:
    """Return the operations of forward passes over the first `chunks` `[n]` of documents, and the factors' share.

    `targets` of these chunks are scored in all.
    """
    chunk, seq_len = recipe.chunk_tokens, recipe.seq_len
    growing = np.minimum(chunks, seq_len // chunk)
    # Windows grow by a chunk until they are full: sums of k and of k² over the growing ones.
    tokens = chunk * growing * (growing + 1) / 2 + (chunks - growing) * seq_len
    squares = chunk**2 * growing * (growing + 1) * (2 * growing + 1) / 6 + (chunks - growing) * float(seq_len) ** 2
    factors = float(tokens.sum()) * cost.factors
    body = float(tokens.sum()) * cost.body + float(squares.sum()) / 2 * cost.attention
    return body + factors + targets * cost.head, factors


def _phase_flops(cfg: Config, cost: PassCost, scored: Sequence[QueuedBatch], number: int) -> float:
    phases, recipe = cfg.eval.ttt.lora_phases, ttt_recipe(cfg)
    documents = phase_documents(scored, pause_after(phases.count, phases.documents)[number - 1], phases.order)
    tokens = int(documents[:, 1].sum()) + len(documents)
    return phases.epochs * tokens * _step_flops(cost._replace(factors=0.0), recipe)


def _step_flops(cost: PassCost, recipe: TTTRecipe) -> float:
    """Return the operations of a step on all weights for each token, which is three forward passes."""
    return 3 * (cost.body + cost.attention * recipe.seq_len / 2 + cost.head)


def _pass_cost(cfg: Config, model: GPT) -> PassCost:
    forward = pass_flops(cfg, model, model.active_in_scoring, trains=False)
    head = 2.0 * cfg.model.vocab_size * cfg.model.model_dim
    # Every token of the context is seen here, and by the mean token of a row half of them.
    return PassCost(forward.matmul - head, 2 * forward.attention_slope, head, 0.0)
