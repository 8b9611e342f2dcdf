"""Twenty steps of each of some presets, as `golf gpu-check` takes them: step time and memory beside the plan's."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from golf.commands.gpu_check_command import one_line
from golf.lab.plan.gpu_plan import phases_of
from golf.lab.plan.machines import machine_like
from golf.lab.plan.step_model import MEMORY_MARGIN, peak_mib, step_ms
from golf.run.environment import machine_kind
from golf.settings.composition import compose
from golf.settings.config import Config
from golf.training.loop.main import set_up_torch
from golf.training.loop.schedule import muon_momentum
from golf.training.loop.state import TrainState, build_state
from golf.training.loop.warmup import synthetic_batch
from golf.training.model.build import shapeless_model
from golf.training.ranks import Ranks

# Steps take no score, and a score may not fit a shortened sequence.
WITHOUT_SCORES = ("eval.stride=0", "eval.ttt.method=off")
UNTIMED_STEPS = 3  # steps that compile and fill caches
HEADER = ["| preset | ms a step | planned | peak MiB | planned | loss | |", "|---|---|---|---|---|---|---|"]


@dataclass(frozen=True)
class Measured:
    """Some steps of a preset on this machine, and what the plan expected of them; None where it knows nothing."""

    preset: str
    milliseconds: float = 0.0  # median of a step
    planned_ms: float | None = None
    mib: float | None = None  # peak of the memory that torch allocated on the GPU; None on a CPU
    planned_mib: float | None = None
    loss: float = math.nan  # nats a token of the last step
    kernels: tuple[str, ...] = ()  # log lines on attention and on kernels in Triton
    error: str = ""

    @property
    def problem(self) -> str:
        """Return what is wrong, empty if nothing is. A slow machine is no fault of the preset."""
        if self.error:
            return self.error
        if not math.isfinite(self.loss):
            return "its loss is no number"
        if self.mib and self.planned_mib and not 1 / MEMORY_MARGIN < self.mib / self.planned_mib < MEMORY_MARGIN:
            return "memory is not as planned"
        return ""

    @property
    def row(self) -> str:
        """Return its row of the Markdown table under `HEADER`."""
        planned_ms = "" if self.planned_ms is None else f"{self.planned_ms:.1f}"
        memory = ["" if mib is None else f"{mib:,.0f}" for mib in (self.mib, self.planned_mib)]
        cells = [self.preset, f"{self.milliseconds:.1f}", planned_ms, *memory, f"{self.loss:.4f}"]
        return f"| {' | '.join([*cells, f'NO: {self.problem}' if self.problem else 'yes'])} |"


def measure_preset(preset: str, overrides: Sequence[str], device: torch.device, steps: int) -> Measured:
    """Take `steps` steps of `preset` on synthetic tokens. What fails is the error of the result."""
    try:
        return _measured(preset, compose([f"experiment={preset}", *overrides, *WITHOUT_SCORES]), device, steps)
    # A preset that does not fit or compile costs its own row only.
    except Exception as error:
        return Measured(preset, error=one_line(error))
    finally:
        _free(device)


def _measured(preset: str, cfg: Config, device: torch.device, steps: int) -> Measured:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    state, times, loss = timed_steps(cfg, device, steps)
    mib = torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None
    machine = machine_like(machine_kind()) if device.type == "cuda" else None
    planned_ms = planned_mib = None
    if machine:
        # The steps here are the first ones of a run, before late switches.
        _, work = phases_of(cfg, shapeless_model(cfg))[0]
        planned_ms, planned_mib = machine.kind.slowdown * step_ms([(1.0, work)]), peak_mib(work)
    kernels = tuple(filter(None, (state.attention, *state.kernels)))
    return Measured(preset, statistics.median(times), planned_ms, mib, planned_mib, loss, kernels)


def timed_steps(cfg: Config, device: torch.device, steps: int) -> tuple[TrainState, list[float], float]:
    """Take steps on synthetic tokens; return the state after them, the milliseconds of each, and the last loss."""
    set_up_torch(cfg)
    state = build_state(cfg, Ranks(device=device))
    inputs, targets = batch = synthetic_batch(cfg)
    if device.type == "cuda":
        batch = inputs.pin_memory(), targets.pin_memory()
    taken = [_timed_step(cfg, state, batch) for _ in range(UNTIMED_STEPS + steps)]
    return state, [milliseconds for milliseconds, _ in taken[UNTIMED_STEPS:]], taken[-1][1]


def _timed_step(cfg: Config, state: TrainState, batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[float, float]:
    """Return the milliseconds of a step and its loss."""
    start = time.perf_counter()
    loss = state.step(lambda: batch, 1.0, muon_momentum(cfg.optim, 0), state.switches.on)
    if state.step.device.type == "cuda":
        torch.cuda.synchronize(state.step.device)
    return 1000 * (time.perf_counter() - start), loss.item()


def _free(device: torch.device) -> None:
    """Forget compiled graphs and free the memory of a preset, so that the next one starts as the first one did."""
    torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
