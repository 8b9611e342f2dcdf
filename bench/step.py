"""Training steps: tokens a second by compile mode and dtype, and the real training loop for a comparison."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from bench.machine import synchronize
from bench.rounds import alternate
from bench.table import Row
from bench.tokens import random_dataset
from golf.bits import Score
from golf.lab.plan.flops import flops_per_token
from golf.run.console import display_for
from golf.run.folder import RunFolder
from golf.run.runlog import RunLog
from golf.settings.composition import compose
from golf.settings.config import Config
from golf.training.data.batches import open_loader
from golf.training.data.dataset import Dataset
from golf.training.loop.clock import TrainClock
from golf.training.loop.state import build_state
from golf.training.loop.training import train
from golf.training.model.build import shapeless_model
from golf.training.ranks import Ranks

UNTIMED_STEPS = 2


def step_rows(
    overrides: list[str], modes: list[str], dtypes: list[str], device: torch.device, rounds: int
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
    return [_step_row(name, configs[name], own) for name, own in seconds.items()]


@contextlib.contextmanager
def stepping(cfg: Config, device: torch.device) -> Iterator[Callable[[], object]]:
    """Yield a function that takes one training step of a run of `cfg` on new weights and random tokens."""
    torch.manual_seed(cfg.seed)
    ranks = Ranks(device=device)
    step = build_state(cfg, ranks).step
    with open_loader(cfg, random_dataset(cfg), ranks) as loader:
        yield lambda: step(loader.next_batch, 1.0, 0.95, ())


def _step_row(name: str, cfg: Config, seconds: list[float]) -> Row:
    tokens = cfg.data.train_batch_tokens
    flops = flops_per_token(cfg, shapeless_model(cfg)).total * tokens
    return Row("step", f"{cfg.name} {name}", seconds, tokens, flops)


def run_loop(cfg: Config, dataset: Dataset, device: torch.device, steps: int, after_step: Callable[[], None]) -> None:
    """Train `steps` steps in the run's own loop and call `after_step` after each."""
    cfg = dataclasses.replace(
        cfg,
        schedule=dataclasses.replace(cfg.schedule, iterations=steps),
        budget=dataclasses.replace(cfg.budget, train_seconds=0.0),
        eval=dataclasses.replace(cfg.eval, val_loss_every=0),
    )
    torch.manual_seed(cfg.seed)
    ranks = Ranks(device=device)
    with contextlib.ExitStack() as stack:
        loader = stack.enter_context(open_loader(cfg, dataset, ranks))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        log = RunLog(RunFolder(Path(folder)), cfg, is_first=True)
        log.display = display_for(is_first=False)
        state = build_state(cfg, ranks)
        for _ in range(UNTIMED_STEPS):
            state.step(loader.next_batch, 0.0, 0.95)
        _call_after_steps(log, device, after_step)
        # The loop asks for a validation score at its end, which is no part of the steps.
        score = Score(1.0, 1.0, 1, 1, 0.0)
        train(cfg, state, loader, lambda last: score, log, TrainClock(ranks))
        log.close()


def _call_after_steps(log: Any, device: torch.device, after_step: Callable[[], None]) -> None:
    """Call `after_step` when the log line of a step is written, which is the last thing that a step does."""
    write = log.train_step

    def written(*args: Any) -> None:
        write(*args)
        synchronize(device)
        after_step()

    log.train_step = written
