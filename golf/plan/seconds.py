"""Milliseconds a step from finished runs on the same machine, and the steps that a time budget holds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from golf.challenge import VALIDATION_TOKENS
from golf.plan.flops import flops_per_scored_token
from golf.plan.history import FinishedRun
from golf.plan.size import Interval
from golf.settings.config import Config, eval_seq_len, training_seconds, world_size
from golf.training.model.build import shapeless_model
from golf.training.model.gpt import GPT

SIMILAR = 2.0  # a step of at most so many times the operations, or so many times fewer
MOST_COMPARED = 5


class Speed(NamedTuple):
    """`step_ms` is None where no finished run says anything; `basis` says what it rests on."""

    step_ms: Interval | None
    basis: str


def step_speed(cfg: Config, flops_per_step: float, machine: str, history: Sequence[FinishedRun]) -> Speed:
    """Time of a step: median operations per second of the most similar finished runs, lowest and highest as ends."""
    here = [run for run in history if run.machine == machine and _runs_alike(run.config, cfg)]
    rated = []
    for run in here:
        flops = run.flops_per_step()
        far = abs(math.log(flops / flops_per_step))
        if far <= math.log(SIMILAR) and run.result.step_ms:
            rated.append((far, run.result.step_ms / flops))
    if not rated:
        return Speed(None, f"no finished run of a similar step on this machine ({machine})")
    per_flop = [rate for _, rate in sorted(rated)[:MOST_COMPARED]]
    values = (min(per_flop), statistics.median(per_flop), max(per_flop))
    return Speed(Interval(*(rate * flops_per_step for rate in values)), f"{len(per_flop)} finished runs here")


def _runs_alike(a: Config, b: Config) -> bool:
    def setting(cfg: Config) -> tuple[object, ...]:
        launch = cfg.launch
        ranks = launch.nproc, launch.nodes, launch.threads
        return launch.device, ranks, launch.compile, cfg.model.compute_dtype, cfg.model.attention

    return setting(a) == setting(b)


def steps_within_budget(cfg: Config, step_ms: Interval | None) -> Interval | None:
    """Steps until the clock or the step cap ends the run; None if there is a clock and the speed is not known."""
    cap = float(cfg.schedule.iterations)
    if not training_seconds(cfg):
        return Interval(cap, cap, cap)
    if step_ms is None:
        return None
    milliseconds = 1000.0 * training_seconds(cfg)
    return Interval(*(min(cap, math.floor(milliseconds / ms)) for ms in reversed(step_ms)))


STRIDE = 64
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
