"""Seconds that a sliding score of the challenge's whole validation split takes on 1 and on 8 such devices."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from golf.config import Config, eval_seq_len, world_size
from golf.model.gpt import GPT
from golf.model.shapeless import shapeless_model
from golf.plan.flops import flops_per_scored_token
from golf.plan.history import FinishedRun

STRIDE = 64
VALIDATION_TOKENS = 62_021_632  # of fineweb10B_sp1024 in whole sequences of 1,024
RANKS = (1, 8)
MOST_COMPARED = 5


class SlidingScore(NamedTuple):
    """`seconds` by number of ranks; None where no finished run says how fast this machine scores."""

    stride: int
    seconds: dict[int, float] | None
    basis: str


def sliding_score(cfg: Config, model: GPT, machine: str, history: Sequence[FinishedRun]) -> SlidingScore:
    """From seconds per operation of finished runs here; of sliding scores if there are any, else of flat ones."""
    stride = cfg.eval.stride or min(STRIDE, eval_seq_len(cfg))
    here = [run for run in history if run.machine == machine and run.config.eval.dtype == cfg.eval.dtype]
    sliding = [r for run in here if (r := _rank_seconds_per_flop(run, sliding=True))][:MOST_COMPARED]
    rates = sliding or [r for run in here if (r := _rank_seconds_per_flop(run, sliding=False))][:MOST_COMPARED]
    if not rates:
        return SlidingScore(stride, None, f"no finished run in {cfg.eval.dtype} on this machine ({machine})")
    seconds = statistics.median(rates) * flops_per_scored_token(cfg, model, stride) * VALIDATION_TOKENS
    basis = f"{len(rates)} {'sliding' if sliding else 'flat'} scores here"
    return SlidingScore(stride, {ranks: seconds / ranks for ranks in RANKS}, basis)


def _rank_seconds_per_flop(run: FinishedRun, *, sliding: bool) -> float | None:
    score = run.result.post_quant_sliding if sliding else run.result.post_quant
    if score is None or not score.seconds:
        return None
    stride = run.config.eval.stride if sliding else 0
    work = flops_per_scored_token(run.config, shapeless_model(run.config), stride) * score.tokens
    return score.seconds * world_size(run.config) / work
