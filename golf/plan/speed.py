"""Milliseconds a step from finished runs on the same machine, and the steps that a time budget holds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from golf.config import Config, training_seconds
from golf.plan.history import FinishedRun
from golf.plan.size import Interval

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
