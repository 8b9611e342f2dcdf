"""The training step: tokens a second of every way to run it, and where the time of the real training loop goes."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from bench.machine import Machine, synchronize
from bench.table import Row
from bench.tokens import random_dataset
from bench.turns import take_turns
from bench.work import step_bytes
from golf.bits import Score
from golf.plan.flops import flops_per_token
from golf.run.console import display_for
from golf.run.folder import RunFolder
from golf.run.runlog import RunLog
from golf.settings.composition import compose
from golf.settings.config import Config
from golf.training.data.batches import open_loader
from golf.training.data.dataset import Dataset
from golf.training.loop.steps import TrainStep
from golf.training.loop.switches import StepHooks, Switches
from golf.training.loop.training import train
from golf.training.model.attention import choose_kernel
from golf.training.model.build import build_model, compile_for_training, shapeless_model
from golf.training.optim.groups import build_optimizer
from golf.training.ranks import Ranks

LOADER, FORWARD, BACKWARD, OPTIMIZER, REST = "loader", "forward", "backward", "optimizer", "everything else"
UNTIMED_STEPS = 2


def step_rows(
    overrides: list[str], modes: list[str], dtypes: list[str], machine: Machine, device: torch.device, rounds: int
) -> list[Row]:
    """One row for every compile mode and dtype of the configuration."""
    with contextlib.ExitStack() as stack:
        configs = {
            f"compile={mode} {dtype}": compose(
                [*overrides, f"launch.compile={mode}", f"model.compute_dtype={dtype}", f"optim.muon_dtype={dtype}"]
            )
            for mode in modes
            for dtype in dtypes
        }
        ways = {name: stack.enter_context(_stepping(cfg, device)) for name, cfg in configs.items()}
        seconds = take_turns(ways, rounds, device, UNTIMED_STEPS)
    return [_step_row(name, configs[name], own, machine) for name, own in seconds.items()]


@contextlib.contextmanager
def _stepping(cfg: Config, device: torch.device) -> Iterator[Callable[[], object]]:
    step, ranks = prepared_step(cfg, device), Ranks(device=device)
    with open_loader(cfg, random_dataset(cfg), ranks) as loader:
        yield lambda: step(loader.next_batch, 1.0, 0.95)


def prepared_step(cfg: Config, device: torch.device) -> TrainStep:
    """A step as a run takes it, on new weights."""
    torch.manual_seed(cfg.seed)
    model = build_model(cfg).to(device)
    choose_kernel(device, cfg)
    compile_for_training(model, cfg.launch.compile)
    return TrainStep(cfg, model, build_optimizer(cfg, model), Ranks(device=device))


def _step_row(name: str, cfg: Config, seconds: list[float], machine: Machine) -> Row:
    model = shapeless_model(cfg)
    dtype, tokens = cfg.model.compute_dtype, cfg.data.train_batch_tokens
    flops = flops_per_token(cfg, model).total * tokens
    floor = machine.floor_seconds(dtype, flops, step_bytes(cfg, model))
    return Row("step", f"{cfg.name} {name}", seconds, tokens, flops, dtype, floor)


class Stopwatch:
    """Splits time into phases: what has passed at a mark belongs to the phase the mark names."""

    def __init__(self, device: torch.device):
        self.device = device
        self.seconds: dict[str, float] = defaultdict(float)
        self._last = time.perf_counter()

    def mark(self, phase: str) -> None:
        synchronize(self.device)
        now = time.perf_counter()
        self.seconds[phase] += now - self._last
        self._last = now

    def around(self, before: str, function: Callable[..., Any], after: str) -> Callable[..., Any]:
        """`function`, with what has passed before each call counted as `before`, and its own time as `after`."""

        def marked(*args: Any, **kwargs: Any) -> Any:
            self.mark(before)
            result = function(*args, **kwargs)
            self.mark(after)
            return result

        return marked


class _WatchedModel:
    """Stands where DDP would, around the forward pass."""

    def __init__(self, watch: Stopwatch, model: Callable[..., Any]):
        self.call = watch.around(LOADER, model, FORWARD)

    def __call__(self, *args: Any) -> Any:
        return self.call(*args)

    def no_sync(self) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()


def breakdown_rows(cfg: Config, machine: Machine, device: torch.device, steps: int) -> list[Row]:
    """Phases of `steps` steps of the run's own loop, its log and its bookkeeping included; shares in the note."""
    seconds = run_loop(cfg, random_dataset(cfg), device, steps).seconds
    total = sum(seconds.values())
    what = f"{cfg.name} compile={cfg.launch.compile} {cfg.model.compute_dtype}"
    return [
        Row("breakdown", f"{what}: {phase}", [seconds[phase] / steps], note=f"{seconds[phase] / total:.2%}")
        for phase in (FORWARD, BACKWARD, OPTIMIZER, LOADER, REST)
    ]


def run_loop(
    cfg: Config, dataset: Dataset, device: torch.device, steps: int, after_step: Callable[[], None] | None = None
) -> Stopwatch:
    """Train `steps` steps in the run's own loop; split its time, or without that call `after_step` after each."""
    cfg = dataclasses.replace(
        cfg,
        schedule=dataclasses.replace(cfg.schedule, iterations=steps),
        budget=dataclasses.replace(cfg.budget, train_seconds=0.0),
        eval=dataclasses.replace(cfg.eval, val_loss_every=0),
    )
    step, ranks, watch = prepared_step(cfg, device), Ranks(device=device), Stopwatch(device)
    with contextlib.ExitStack() as stack:
        loader = stack.enter_context(open_loader(cfg, dataset, ranks))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for _ in range(UNTIMED_STEPS):
            step(loader.next_batch, 0.0, 0.95)
        log = RunLog(RunFolder(Path(folder)), cfg, is_first=True)
        log.display = display_for(is_first=False)
        if after_step is None:
            _attach(watch, step, loader)
        else:
            _call_after_steps(log, device, after_step)
        score, switches = Score(1.0, 1.0, 1, 1, 0.0), Switches(cfg, log.switched_on)
        watch.mark(REST)
        watch.seconds.clear()
        train(cfg, step, loader, lambda last: score, ranks, log, switches, StepHooks(cfg, step.model))
        watch.mark(REST)
        log.close()
    return watch


def _call_after_steps(log: Any, device: torch.device, after_step: Callable[[], None]) -> None:
    """The log line is the last thing a step does."""
    write = log.train_step

    def written(*args: Any) -> None:
        write(*args)
        synchronize(device)
        after_step()

    log.train_step = written


def _attach(watch: Stopwatch, step: TrainStep, loader: Any) -> None:
    """Marks around what a step calls; between a forward pass and the next batch or update there is the backward."""
    optimizer: Any = step.optimizer
    step.parallel = _WatchedModel(watch, step.model)  # type: ignore[assignment]
    loader.next_batch = watch.around(BACKWARD, loader.next_batch, LOADER)
    optimizer.zero_grad = watch.around(REST, optimizer.zero_grad, OPTIMIZER)
    optimizer.step = watch.around(BACKWARD, optimizer.step, OPTIMIZER)
