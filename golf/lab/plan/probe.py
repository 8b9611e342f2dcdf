"""Time steps of a configuration on this machine, for a plan without finished runs of a similar step."""

from __future__ import annotations

import statistics

import torch

from golf.errors import GolfError
from golf.lab.plan.artifact_size import Interval
from golf.lab.plan.seconds import StepTime
from golf.run.environment import machine_kind
from golf.settings.config import Config, world_size
from golf.settings.hardware import cpu_cores, require_device
from golf.training.loop.main import set_up_torch
from golf.training.loop.pace import time_steps
from golf.training.loop.state import build_state
from golf.training.memory import check_memory
from golf.training.ranks import join_ranks

STEPS = 20
UNTIMED = 3  # steps that compile, start threads and fill caches


def probed_step_time(cfg: Config) -> StepTime:
    """Return the time of a step of `cfg` here: the median of some steps on synthetic tokens, from the 10 % to the 90 %
    quantile.

    Late switches that make steps slower are not on yet. Raises `GolfError` for several ranks, and for a device or
    memory that are not there.
    """
    if world_size(cfg) != 1:
        raise GolfError(
            f"A probe is one process, and the configuration has {world_size(cfg)} ranks: use launch.nproc=1, or plan "
            "after a short run."
        )
    require_device(cfg.launch.device)
    check_memory(cfg)
    torch.set_num_threads(cfg.launch.threads or cpu_cores())
    set_up_torch(cfg)
    state = build_state(cfg, join_ranks(cfg.launch.device, 1))
    milliseconds = [1000 * seconds for seconds in time_steps(cfg, state, UNTIMED + STEPS)[UNTIMED:]]
    deciles = statistics.quantiles(milliseconds, n=10)
    step_ms = Interval(deciles[0], statistics.median(milliseconds), deciles[-1])
    return StepTime(step_ms, f"a probe of {STEPS} steps on this machine ({machine_kind()})")
