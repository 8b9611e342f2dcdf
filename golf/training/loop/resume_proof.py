"""Proof that a run which resumes from a checkpoint goes on as if it had not been stopped."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from golf.run.folder import RunFolder
from golf.run.progress import Progress
from golf.settings.config import Config, grad_accum_steps
from golf.training.data.batches import make_loader
from golf.training.data.dataset import Dataset
from golf.training.loop.checkpoint import Checkpoints, Start, flatten
from golf.training.loop.state import TrainState
from golf.training.loop.steps import TrainStep
from golf.training.loop.switches import StepHooks, Switches
from golf.training.model.build import shapeless_model
from golf.training.model.gpt import GPT
from golf.training.optim.groups import build_optimizer
from golf.training.optim.matrices import declared_row_counts
from golf.training.ranks import ALONE
from golf.words import listed

ROWS = 8  # largest size of a dimension of the small model
# A number that most intervals between snapshots divide, so that every step is one of theirs.
EVERY = 3_603_600
STEPS = (0.02, 0.6, 0.9, 1.0)  # finished fraction of the training at each step; the checkpoint is in the middle


def lost_by_resume(cfg: Config, dataset: Dataset) -> list[str]:
    """Return a sentence for everything that differs between a run with and one without a resume in its middle.

    Optimizer, averages, late switches and random state go through a checkpoint's file, in the dtypes of the run, and
    take two more steps on random gradients. The weights have the names, kinds and dtypes of the run's, and few rows.
    """
    with tempfile.TemporaryDirectory() as place, torch.random.fork_rng(devices=[]):
        folder, middle = RunFolder(Path(place)), len(STEPS) // 2
        steady, resumed = _SmallRun(cfg), _SmallRun(cfg)
        steady.train(range(middle))
        Checkpoints(cfg, folder, steady.state, "").save(Start(middle, active=steady.state.switches.active))
        expected = steady.train(range(middle, len(STEPS)))
        try:
            start = Checkpoints(cfg, folder, resumed.state, "").load()
            resumed.state.switches.resume(start.active)
            found = resumed.train(range(middle, len(STEPS)))
        # Any error: it would end the resumed run.
        except Exception as error:
            return [f"no run resumes from a checkpoint of this one: {' '.join(str(error).split())}"]
    names = [name for name in expected.keys() | found.keys() if not _equal(expected.get(name), found.get(name))]
    lost = f"a resumed run goes on otherwise: {listed(sorted(names))} differ, so a state_dict lacks something"
    return [*([lost] if names else []), *_lost_batches(cfg, dataset)]


class _SmallRun:
    """Training state of a small model, whose steps take random gradients in place of a backward pass."""

    def __init__(self, cfg: Config):
        # Copies, because a technique that keeps its state to itself would share it with the other run.
        cfg = copy.deepcopy(cfg)
        model = small_model(cfg)
        step = TrainStep(cfg, model, build_optimizer(cfg, model), ALONE)
        self.state = TrainState(step, Switches(cfg, lambda *_: None), StepHooks(cfg, model))

    def train(self, steps: range) -> dict[str, Tensor]:
        """Take the numbered steps. Return what training has changed by name, and the random numbers drawn."""
        state, drawn, active = self.state, {}, []
        for i in steps:
            progress = Progress(EVERY * i, STEPS[i], 1.0 - STEPS[i])
            state.hooks.before_step(progress)
            before, now = state.switches.active, state.switches.advance(progress)
            with torch.no_grad():
                state.hooks.at_switch(before, now)
            _random_gradients(state.model, seed=i)
            state.step.optimizer.step()
            state.step.optimizer.zero_grad()
            state.hooks.after_step(progress._replace(step=EVERY * (i + 1)))
            drawn[f"random numbers of step {i}"] = torch.rand(4)
            active.append(torch.tensor([name in now for name in state.switches.names]))
        changed = {"weights": state.model.state_dict(), "optimizer": state.step.optimizer.state_dict()}
        averages = {name: averager.weights() for name, averager in state.hooks.averagers.items()}
        return flatten({**changed, "averages": averages, "late switches": active}) | drawn


def small_model(cfg: Config) -> GPT:
    """Return the model of `cfg` with at most `ROWS` in each dimension of a parameter, filled with random numbers.

    It cannot be called, but it has the parameters' names, dtypes and row counts, which optimizers and averages read.
    """
    model = shapeless_model(cfg)
    row_counts = declared_row_counts(model)
    for module in model.modules():
        for name, param in list(module.named_parameters(recurse=False)):
            shape = [min(size, ROWS) for size in param.shape]
            if param in row_counts:
                rows = [min(count, ROWS) for count in row_counts[param]]
                module.separate_rows, shape[0] = {**module.separate_rows, name: rows}, sum(rows)  # type: ignore
            setattr(module, name, nn.Parameter(torch.randn(shape).to(param.dtype)))
        for name, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, name, torch.zeros_like(buffer, device="cpu"))
    return model


def _random_gradients(model: nn.Module, seed: int) -> None:
    """Give the parameters random gradients; every third has none, as one that a late switch alone uses."""
    generator = torch.Generator().manual_seed(seed)
    for i, param in enumerate(model.parameters()):
        grad = torch.randn(param.shape, generator=generator).to(param.dtype)
        param.grad = None if (i + seed) % 3 == 0 else grad


def _equal(a: Tensor | None, b: Tensor | None) -> bool:
    return a is not None and b is not None and a.dtype == b.dtype and torch.equal(a, b)


def _lost_batches(cfg: Config, dataset: Dataset) -> list[str]:
    """Return a sentence if a loader that skips the batches of a step does not go on where one that reads them does."""
    steady, resumed, batches = make_loader(cfg, dataset), make_loader(cfg, dataset), grad_accum_steps(cfg)
    for _ in range(batches):
        steady.next_batch()
    resumed.skip(batches)
    pairs = zip(steady.next_batch(), resumed.next_batch(), strict=True)
    same = all(torch.equal(a, b) for a, b in pairs)
    return [] if same else [f"the loader {cfg.data.loader} does not go on with the next batch after a resume"]
