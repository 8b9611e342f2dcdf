"""Pace check before the clock: a machine slower than earlier ones of its kind is named, or refused.

Every check is recorded in `<runs root>/speeds.jsonl`. The first run of a model shape on a kind of machine only records.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import statistics
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from golf.errors import GolfError
from golf.files import append_lines, read_lines
from golf.run.environment import machine_kind
from golf.run.folder import runs_root
from golf.run.identity import identity
from golf.settings.config import Config, mean_of_steps
from golf.training.loop.schedule import muon_momentum
from golf.training.loop.state import TrainState
from golf.training.loop.warmup import restored, synthetic_batch

GPU_STEPS = 30
SLOW = 1.15  # a step slower than this factor of the median of earlier runs counts as slow
REMEMBERED = 50  # number of earlier runs in the median
# Settings that decide how long a step takes, by the start of their names.
DATA_WORK = "data.train_batch_tokens", "data.train_seq_len", "data.micro_batches"
WORK = ("model.", "tech.", *DATA_WORK, "schedule.stages", "optim.muon")


@dataclass(frozen=True)
class Speed:
    """Milliseconds a step, and the median of earlier checks of the same work on the same kind of machine."""

    step_ms: float
    reference_ms: float | None
    runs: int

    @property
    def slowdown(self) -> float | None:
        """Step time over that of earlier runs if this machine is slow, else None."""
        times = self.step_ms / self.reference_ms if self.reference_ms else 1.0
        return times if times > SLOW else None

    @property
    def warning(self) -> str | None:
        """Sentence for the log if this machine is slow, else None."""
        if self.slowdown is None:
            return None
        return (
            f"slow machine: a step takes {self.step_ms:.1f} ms, {self.slowdown:.2f} times the "
            f"median of {self.runs} earlier runs on machines of its kind"
        )


def speed_steps(cfg: Config) -> int:
    """Return the number of steps that are timed before the clock starts."""
    if cfg.launch.speed_steps is not None:
        return cfg.launch.speed_steps
    return GPU_STEPS if cfg.launch.device == "cuda" else 0


def check_speed(cfg: Config, state: TrainState) -> Speed | None:
    """Time some steps, compare them with earlier runs and record them, then restore weights and random state.

    All ranks have to call it. Returns None on other ranks than the first, and if no steps are to be timed.
    """
    if (steps := speed_steps(cfg)) == 0:
        return None
    # The median, because other work on the machine disturbs single steps.
    step_ms = 1000 * statistics.median(time_steps(cfg, state, steps))
    if not state.ranks.is_first:
        return None
    key = {"machine": machine_kind(), "work": _work(cfg)}
    # Read before this run is recorded, or it would be compared with itself.
    speeds = runs_root() / "speeds.jsonl"
    earlier = [e["step_ms"] for e in read_lines(speeds) if "step_ms" in e and e.items() >= key.items()][-REMEMBERED:]
    # A history that cannot be written must not end a run.
    with contextlib.suppress(GolfError):
        append_lines(speeds, [{**key, "step_ms": round(step_ms, 3)}])
    return Speed(step_ms, statistics.median(earlier) if earlier else None, len(earlier))


def time_steps(cfg: Config, state: TrainState, steps: int) -> list[float]:
    """Return the seconds of each of some steps on synthetic tokens, then restore weights and random state.

    With stages, each is the mean of a step in every stage, as the run would have them.
    """
    # One batch for all steps: making tokens would be timed with them.
    batch = synthetic_batch(cfg)
    if state.step.device.type == "cuda":
        batch = batch[0].pin_memory(), batch[1].pin_memory()
    with restored(state.step):
        return [_seconds_of_step(cfg, state, batch) for _ in range(steps)]


def _seconds_of_step(cfg: Config, state: TrainState, batch: tuple[Tensor, Tensor]) -> float:
    seconds = []
    for number in range(len(state.stages.all) - 1, -1, -1):
        state.stages.enter(number)
        seconds.append(_step_seconds(cfg, state, state.stages.cut(batch)))
    return mean_of_steps(cfg, seconds[::-1])


def _step_seconds(cfg: Config, state: TrainState, batch: tuple[Tensor, Tensor]) -> float:
    start = time.perf_counter()
    state.step(lambda: batch, 1.0, muon_momentum(cfg.optim, 0), state.switches.on)
    state.ranks.synchronize()
    state.ranks.barrier()
    return time.perf_counter() - start


def _work(cfg: Config) -> str:
    """Return eight hex digits, the same for runs whose steps do the same work in the same way."""
    launch = (cfg.launch.nproc, cfg.launch.nodes, cfg.launch.compile, cfg.launch.threads, torch.__version__)
    values = {k: v for k, v in identity(cfg).items() if k.startswith(WORK)}
    return hashlib.sha256(json.dumps([values, launch]).encode()).hexdigest()[:8]
