"""Parts `step`, `presets` and `run` of `golf gpu-check`: step times and memory beside the plan's, and the main job."""

from __future__ import annotations

import functools
import gc
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from golf.commands.gpu_part import Answer, Order, Task
from golf.errors import GolfError
from golf.lab.plan.gpu_plan import phases_of
from golf.lab.plan.machines import machine_like
from golf.lab.plan.step_model import MEMORY_MARGIN, peak_mib, step_ms
from golf.paths import ROOT
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
ROUNDS = 15  # of steps in turns


def step_tasks(order: Order) -> Iterator[Task]:
    """Yield the rows of the part `step`."""
    device, compiled = torch.device(order.device), [*order.overrides, "launch.compile=full"]
    yield "compiles once", lambda: compiles_once(compiled, device)
    yield "steps, compiled", lambda: measure(compiled, device, order.steps)
    if order.against:
        yield f"in turns with {order.against}", lambda: in_turns(order)
    yield "steps, not compiled", lambda: measure([*order.overrides, "launch.compile=off"], device, order.steps)


def preset_tasks(order: Order) -> Iterator[Task]:
    """Yield a row for each preset, compiled where `launch.compile` says nothing else."""
    for preset in order.presets:
        overrides = [f"experiment={preset}", "launch.compile=full", *order.scale]
        yield preset, functools.partial(measure, overrides, torch.device(order.device), order.steps)


def run_tasks(order: Order) -> Iterator[Task]:
    """Yield the main job, unless it is to take no time."""
    if order.train_seconds:
        yield f"the main job, {order.train_seconds:g} s", lambda: main_job(order)


def compiles_once(overrides: Sequence[str], device: torch.device) -> Answer:
    """Compile the model to one graph and take a second step, which must not compile again."""
    cfg = compose([*overrides])
    step = build_state(cfg, Ranks(device=device)).step
    start = time.perf_counter()
    step(lambda: synthetic_batch(cfg), 1.0, 0.9)
    seconds = time.perf_counter() - start
    with torch.compiler.set_stance("fail_on_recompile"):
        # A schedule changes learning rate and momentum in every step.
        step(lambda: synthetic_batch(cfg), 0.5, 0.95)
    return True, f"first step {seconds:.1f} s, second one without compiling"


@dataclass(frozen=True)
class Measured:
    """Some steps of a configuration on this machine, and the plan's figures; None where it knows none."""

    milliseconds: float  # median of a step
    tokens: int  # of a step
    planned_ms: float | None
    mib: float | None  # peak of the memory that torch allocated on the GPU; None on a CPU
    planned_mib: float | None
    loss: float  # nats a token of the last step
    kernels: tuple[str, ...] = ()  # log lines on attention and on kernels in Triton

    @property
    def problem(self) -> str:
        """Return what is wrong, empty if nothing is. A slow machine is no fault of the configuration."""
        if not math.isfinite(self.loss):
            return "its loss is no number"
        if self.mib and self.planned_mib and not 1 / MEMORY_MARGIN < self.mib / self.planned_mib < MEMORY_MARGIN:
            return "memory is not as planned"
        return ""

    @property
    def detail(self) -> str:
        """Return the figures in a sentence."""
        rate = 1000 * self.tokens / self.milliseconds
        said = [self.problem] if self.problem else []
        said.append(f"{self.milliseconds:.1f} ms a step{_planned(self.planned_ms, '.1f')}, {rate:,.0f} tokens/s")
        if self.mib is not None:
            said.append(f"{self.mib:,.0f} MiB{_planned(self.planned_mib, ',.0f')}")
        return "; ".join([*said, f"loss {self.loss:.4f}", *self.kernels])


def _planned(value: float | None, how: str) -> str:
    return "" if value is None else f" (planned {value:{how}})"


def measure(overrides: Sequence[str], device: torch.device, steps: int) -> Answer:
    """Take `steps` steps on synthetic tokens; return time and memory beside the plan's."""
    cfg = compose([*overrides, *WITHOUT_SCORES])
    try:
        found = _measured(cfg, device, steps)
    finally:
        _free(device)
    return not found.problem, found.detail


def _measured(cfg: Config, device: torch.device, steps: int) -> Measured:
    is_gpu = device.type == "cuda"
    if is_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    state, times, loss = timed_steps(cfg, device, steps)
    mib = torch.cuda.max_memory_allocated(device) / 2**20 if is_gpu else None
    machine = machine_like(machine_kind()) if is_gpu else None
    planned_ms = planned_mib = None
    if machine:
        # The steps here are the first ones of a run, before late switches.
        _, work = phases_of(cfg, shapeless_model(cfg))[0]
        planned_ms, planned_mib = machine.kind.slowdown * step_ms([(1.0, work)]), peak_mib(work)
    kernels = tuple(filter(None, (state.attention, *state.kernels)))
    tokens = cfg.data.train_batch_tokens
    return Measured(statistics.median(times), tokens, planned_ms, mib, planned_mib, loss, kernels)


def timed_steps(cfg: Config, device: torch.device, steps: int) -> tuple[TrainState, list[float], float]:
    """Take steps on synthetic tokens; return the state after them, the milliseconds of each, and the last loss."""
    state, batch = stepping(cfg, device)
    taken = [timed_step(cfg, state, batch) for _ in range(UNTIMED_STEPS + steps)]
    return state, [milliseconds for milliseconds, _ in taken[UNTIMED_STEPS:]], taken[-1][1]


def stepping(cfg: Config, device: torch.device) -> tuple[TrainState, tuple[torch.Tensor, torch.Tensor]]:
    """Return a state and a batch for `timed_step`."""
    set_up_torch(cfg)
    state = build_state(cfg, Ranks(device=device))
    inputs, targets = batch = synthetic_batch(cfg)
    return state, (inputs.pin_memory(), targets.pin_memory()) if device.type == "cuda" else batch


def timed_step(cfg: Config, state: TrainState, batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[float, float]:
    """Take a step; return its milliseconds and its loss."""
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


def in_turns(order: Order) -> Answer:
    """Take steps in turns with those of a public script, by `golf bench`; return the ratio of the speeds."""
    dtype = compose(order.overrides).model.compute_dtype
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "bench.json"
        options = ["--parts=none", "--experiments=none", f"--dtypes={dtype}", f"--rounds={ROUNDS}", f"--json={figures}"]
        mode = compose(order.overrides).launch.compile
        command = ["scripts/bench.py", *options, f"--compile={mode}", f"--against={order.against}", *order.overrides]
        done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, encoding="utf-8")
        if done.returncode:
            raise GolfError((done.stderr.strip().splitlines() or ["it said nothing"])[-1])
        rows = json.loads(figures.read_text(encoding="utf-8"))["rows"]
    return True, "\n".join(f"{row['what']}: {1000 * row['median_seconds']:.1f} ms {row['note']}" for row in rows)


def main_job(order: Order) -> Answer:
    """Train for `train_seconds`, pack and score, as a run does; return the table that it prints at its end."""
    command = ["golf/train.py", *order.overrides, f"budget.train_seconds={order.train_seconds:g}"]
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, encoding="utf-8")
    if done.returncode:
        return (
            False,
            f"status {done.returncode}: {((done.stderr or done.stdout).strip().splitlines() or ['no word'])[-1]}",
        )
    rows = [" ".join(line.strip("│ ").replace("│", ":").split()) for line in done.stdout.splitlines() if "│" in line]
    return True, "\n".join(rows)
