"""Training steps: tokens a second by compile mode and dtype, and the share of each phase in the real training loop."""

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
from bench.rounds import alternate
from bench.table import Row
from bench.tokens import random_dataset
from bench.work import step_bytes
from golf.bits import Score
from golf.lab.plan.flops import flops_per_token
from golf.run.console import display_for
from golf.run.folder import RunFolder
from golf.run.runlog import RunLog
from golf.settings.composition import compose
from golf.settings.config import Config
from golf.training.data.batches import open_loader
from golf.training.data.dataset import Dataset, open_dataset
from golf.training.loop.state import build_state
from golf.training.loop.steps import TrainStep
from golf.training.loop.training import train
from golf.training.model.build import shapeless_model
from golf.training.ranks import Ranks

LOADER, FORWARD, BACKWARD, OPTIMIZER, REST = "loader", "forward", "backward", "optimizer", "everything else"
UNTIMED_STEPS = 2
FIXED = "fixed sequences"
BY_DOCUMENT = ("model.within_documents=true", "eval.documents=true")


def step_rows(
    overrides: list[str], modes: list[str], dtypes: list[str], machine: Machine, device: torch.device, rounds: int
) -> list[Row]:
    """Return one row for every compile mode and dtype of the configuration."""
    with contextlib.ExitStack() as stack:
        configs = {
            f"compile={mode} {dtype}": compose(
                [*overrides, f"launch.compile={mode}", f"model.compute_dtype={dtype}", f"optim.muon_dtype={dtype}"]
            )
            for mode in modes
            for dtype in dtypes
        }
        ways = {name: stack.enter_context(stepping(cfg, device)) for name, cfg in configs.items()}
        seconds = alternate(ways, rounds, device, UNTIMED_STEPS)
    return [_step_row(name, configs[name], own, machine) for name, own in seconds.items()]


def document_rows(overrides: list[str], machine: Machine, device: torch.device, rounds: int) -> list[Row]:
    """Return one row each for fixed sequences, for the same with attention by document, and for packed documents.

    Documents have the lengths of the configuration's own data set, which has to be there or is built.
    """
    settings = {
        FIXED: [],
        "fixed sequences, attention by document": list(BY_DOCUMENT),
        "packed documents": [*BY_DOCUMENT, "data.loader=packed"],
    }
    configs = {name: compose([*overrides, *own]) for name, own in settings.items()}
    with contextlib.ExitStack() as stack:
        dataset = open_dataset(configs[FIXED])
        ways = {name: stack.enter_context(stepping(cfg, device, dataset)) for name, cfg in configs.items()}
        seconds = alternate(ways, rounds, device, UNTIMED_STEPS)
    rows = [_step_row(name, configs[name], own, machine) for name, own in seconds.items()]
    return [dataclasses.replace(row, part="documents") for row in rows]


@contextlib.contextmanager
def stepping(
    cfg: Config, device: torch.device, dataset: Dataset | None = None, active: tuple[str, ...] = ()
) -> Iterator[Callable[[], object]]:
    """Open the data of `cfg`, by default random tokens, and yield a function that takes one training step.

    `active` names the late switches that are on.
    """
    step, ranks = prepared_step(cfg, device), Ranks(device=device)
    with open_loader(cfg, dataset or random_dataset(cfg), ranks) as loader:
        yield lambda: step(loader.next_batch, 1.0, 0.95, active)


def prepared_step(cfg: Config, device: torch.device) -> TrainStep:
    """Return the training step of a run of `cfg` on new weights."""
    torch.manual_seed(cfg.seed)
    return build_state(cfg, Ranks(device=device)).step


def _step_row(name: str, cfg: Config, seconds: list[float], machine: Machine) -> Row:
    model = shapeless_model(cfg)
    dtype, tokens = cfg.model.compute_dtype, cfg.data.train_batch_tokens
    flops = flops_per_token(cfg, model).total * tokens
    floor = machine.floor_seconds(dtype, flops, step_bytes(cfg, model))
    return Row("step", f"{cfg.name} {name}", seconds, tokens, flops, dtype, floor)


class Stopwatch:
    """Seconds by phase: the time up to a mark belongs to the phase that the mark names."""

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
        """Wrap `function`: time up to a call counts as the phase `before`, time in it as the phase `after`."""

        def marked(*args: Any, **kwargs: Any) -> Any:
            self.mark(before)
            result = function(*args, **kwargs)
            self.mark(after)
            return result

        return marked


class _WatchedModel:
    """Stopwatch around the forward pass, in the place where a step would keep DDP."""

    def __init__(self, watch: Stopwatch, model: Callable[..., Any]):
        self.call = watch.around(LOADER, model, FORWARD)

    def __call__(self, *args: Any) -> Any:
        return self.call(*args)

    def no_sync(self) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()


def breakdown_rows(cfg: Config, machine: Machine, device: torch.device, steps: int) -> list[Row]:
    """Return the mean seconds of each phase over `steps` steps of the run's own loop, with its log and bookkeeping."""
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
    """Train `steps` steps in the run's own loop and return its time by phase.

    With `after_step` it calls that after each step and measures no phases.
    """
    cfg = dataclasses.replace(
        cfg,
        schedule=dataclasses.replace(cfg.schedule, iterations=steps),
        budget=dataclasses.replace(cfg.budget, train_seconds=0.0),
        eval=dataclasses.replace(cfg.eval, val_loss_every=0),
    )
    torch.manual_seed(cfg.seed)
    ranks, watch = Ranks(device=device), Stopwatch(device)
    with contextlib.ExitStack() as stack:
        loader = stack.enter_context(open_loader(cfg, dataset, ranks))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        log = RunLog(RunFolder(Path(folder)), cfg, is_first=True)
        log.display = display_for(is_first=False)
        state = build_state(cfg, ranks)
        for _ in range(UNTIMED_STEPS):
            state.step(loader.next_batch, 0.0, 0.95)
        if after_step is None:
            _attach(watch, state.step, loader)
        else:
            _call_after_steps(log, device, after_step)
        # The loop asks for a validation score at its end, which is no part of the steps.
        score = Score(1.0, 1.0, 1, 1, 0.0)
        watch.mark(REST)
        watch.seconds.clear()
        train(cfg, state, loader, lambda last: score, log)
        watch.mark(REST)
        log.close()
    return watch


def _call_after_steps(log: Any, device: torch.device, after_step: Callable[[], None]) -> None:
    """Call `after_step` when the log line of a step is written, which is the last thing that a step does."""
    write = log.train_step

    def written(*args: Any) -> None:
        write(*args)
        synchronize(device)
        after_step()

    log.train_step = written


def _attach(watch: Stopwatch, step: TrainStep, loader: Any) -> None:
    """Put marks around the calls of a step. Time from a forward pass to the next batch or update is the backward."""
    optimizer: Any = step.optimizer
    # DDP's place is free on one rank, and the step calls what is there.
    step.parallel = _WatchedModel(watch, step.model)  # type: ignore[assignment]
    loader.next_batch = watch.around(BACKWARD, loader.next_batch, LOADER)
    optimizer.zero_grad = watch.around(REST, optimizer.zero_grad, OPTIMIZER)
    optimizer.step = watch.around(BACKWARD, optimizer.step, OPTIMIZER)
