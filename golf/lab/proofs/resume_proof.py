"""Proof that a run which resumes from a checkpoint goes on as if it had not been stopped.

It also finds what the warm-up leaves behind, because a resumed run has had none of its own.
"""

from __future__ import annotations

import copy
import dataclasses
import tempfile
import types
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from golf.artifact.quant.formats import Tensors
from golf.lab.proofs.random_model import WHILE_SWITCHED, RandomWeights
from golf.run.folder import RunFolder
from golf.run.progress import Progress
from golf.settings.config import Config, grad_accum_steps, scored_config, techniques, trains_apart
from golf.training.data.batches import make_loader
from golf.training.data.dataset import Dataset
from golf.training.loop.checkpoint import Checkpoints, Start
from golf.training.loop.state import TrainState
from golf.training.loop.steps import TrainStep
from golf.training.loop.switches import StepHooks, Switches, switch_names
from golf.training.loop.warmup import restored
from golf.training.model.build import build_model, shapeless_model
from golf.training.model.gpt import GPT
from golf.training.optim.groups import build_optimizer
from golf.training.optim.matrices import declared_row_counts
from golf.training.ranks import ALONE
from golf.words import listed

ROWS = 8  # largest size of a dimension of the small model
# A number that most intervals between snapshots divide, so that every step is one of theirs.
EVERY = 3_603_600
TOKENS = 24  # of a row of the loaded models
# Fraction of the training before each step, and the learning-rate multiplier in it.
STEPS = ((0.02, 1.0), (0.6, 0.5), (1.0, 0.0), (1.0, 0.0), (1.0, 0.0))
BEFORE = 3  # steps before the checkpoint: late switches are on and snapshots are taken
MODULE_ATTRIBUTES = vars(nn.Module()).keys()  # attributes that every module has


def lost_by_resume(cfg: Config) -> list[str]:
    """Return a sentence if anything differs between a run without and one with a resume in its middle.

    Optimizer, averages, late switches and random state go through a checkpoint's file, in the dtypes of the run, and
    take two more steps on random gradients. Then every tensor and number that they hold is compared, because state that
    a `state_dict` lacks may show in the weights much later. The weights have the names, kinds and dtypes of the run's.
    """
    with tempfile.TemporaryDirectory() as place, torch.random.fork_rng(devices=[]):
        folder, steady, resumed = RunFolder(Path(place)), _SmallRun(cfg), _SmallRun(cfg)
        try:
            steady.warm_up()
            steady.train(range(BEFORE))
            start = Start(BEFORE, active=steady.state.switches.on, stage_steps=tuple(steady.state.stages.steps))
            Checkpoints(cfg, folder, steady.state, "").save(start)
            saved = steady.held()
            steady.train(range(BEFORE, len(STEPS)))
            expected = steady.held()
            start = Checkpoints(cfg, folder, resumed.state, "").load()
            resumed.state.switches.resume(start.active)
            resumed.state.stages.resume(start.stage_steps)
            lost = _differing(saved, resumed.held())
            resumed.train(range(BEFORE, len(STEPS)))
        # Any error: it would end the resumed run. What `load` advises about its file would not help here.
        except Exception as error:
            cause = error.__cause__ or error
            what = "a resume, or a step with random gradients before or after it, fails"
            return [f"{what}: {type(cause).__name__}: {' '.join(str(cause).split())}"]
        differing = _differing(expected, resumed.held())
    # An average that fails would be found behind the training, whose weights it is to replace.
    resumed.state.final_weights()
    # What was lost is named, not the weights that differ for it. What every step makes anew was not lost.
    names = listed([name for name in differing if name in lost] or differing)
    lost_by = f"{names} would be lost by a resume, and the warm-up would leave it behind: a state_dict lacks something"
    return [lost_by] if names else []


def lost_by_loading(cfg: Config) -> list[str]:
    """Return a sentence if the network keeps something that a state dict lacks, by which a loss or a score differs.

    Two passes in training with a reload between them are compared with two without one, and the scores of a model that
    only loads weights with those of the trained model.
    """
    cfg = dataclasses.replace(cfg, model=dataclasses.replace(cfg.model, attention="sdpa"))
    weights = RandomWeights(cfg.model.model_dim).model(cfg).state_dict()
    trained, resumed = _at_the_end(cfg, weights), _at_the_end(cfg, weights)
    scored = build_model(scored_config(cfg) if trains_apart(cfg) else cfg).double()
    ids = torch.arange(2 * TOKENS).view(2, TOKENS) * 7 % cfg.model.vocab_size
    losses = []
    with torch.random.fork_rng(devices=[]):
        trained(ids, ids.flip(1), switch_names(cfg))
        resumed.load_state_dict(trained.state_dict())
        for model in (trained, resumed):
            torch.default_generator.manual_seed(0)
            losses.append(model(ids, ids.flip(1), switch_names(cfg)))
    scored.load_state_dict(trained.scored_weights())
    with torch.no_grad():
        scores = [model.token_losses(ids, ids.flip(1)) for model in (trained, scored)]
    where = "in the network, which a state dict lacks: keep it in a buffer with persistent=True"
    lost = [] if _equal(*losses) else [f"a resume would lose something that a pass changes {where}"]
    return lost + ([] if _equal(*scores) else [f"scores would lack something that before_step writes {where}"])


def lost_batches(cfg: Config, dataset: Dataset) -> list[str]:
    """Return a sentence if a loader that skips the batches of a step does not go on where one that reads them does."""
    steady, resumed, batches = make_loader(cfg, dataset), make_loader(cfg, dataset), grad_accum_steps(cfg)
    for _ in range(batches):
        steady.next_batch()
    resumed.skip(batches)
    same = all(torch.equal(a, b) for a, b in zip(steady.next_batch(), resumed.next_batch(), strict=True))
    return [] if same else [f"the loader {cfg.data.loader} does not go on with the next batch after a resume"]


def _at_the_end(cfg: Config, weights: Tensors) -> GPT:
    # A copy, because a technique may keep something in itself.
    cfg = copy.deepcopy(cfg)
    model = build_model(cfg).double()
    model.load_state_dict(weights)
    for technique in techniques(cfg):
        technique.before_step(model, WHILE_SWITCHED)
    return model


class _SmallRun:
    """Training state of a small model, whose steps take random gradients in place of a backward pass."""

    def __init__(self, cfg: Config):
        # Copies, because a technique that keeps its state to itself would share it with the other run.
        cfg = copy.deepcopy(cfg)
        model = small_model(cfg)
        step = TrainStep(cfg, model, build_optimizer(cfg, model), ALONE)
        self.state = TrainState(step, Switches(cfg), StepHooks(cfg, model))

    def warm_up(self) -> None:
        with restored(self.state.step):
            self._update(len(STEPS))

    def train(self, steps: range) -> None:
        """Take the numbered steps, as the timed loop does."""
        hooks, switches, stages = self.state.hooks, self.state.switches, self.state.stages
        for i in steps:
            progress = Progress(EVERY * i, *STEPS[i])
            hooks.begin_step(progress)
            before, now = switches.on, switches.advance(progress)
            hooks.switch(before, now)
            stages.advance(progress)
            self._update(i)
            hooks.after_step(progress._replace(step=EVERY * (i + 1)))

    def _update(self, i: int) -> None:
        """Update the weights with random gradients; every third has none, as one that only a late switch uses."""
        for number, param in enumerate(self.state.model.parameters()):
            param.grad = None if (number + i) % 3 == 0 else torch.randn(param.shape).to(param.dtype)
        self.state.step.optimizer.step()
        self.state.step.optimizer.zero_grad()

    def held(self) -> dict[str, Any]:
        """Return a copy of every tensor and number of this run by name, and of the random state."""
        found: dict[str, Any] = {}
        _collect(vars(self.state) | {"random state": torch.get_rng_state()}, "", found, {})
        return found


def small_model(cfg: Config) -> GPT:
    """Return the model of `cfg` with at most `ROWS` in each dimension of a parameter, filled with random numbers.

    It cannot be called, but it has the parameters' names, dtypes and row counts, which optimizers and averages read.
    """
    model = shapeless_model(cfg)
    row_counts, small = declared_row_counts(model), {}
    for module in model.modules():
        for name, param in list(module.named_parameters(recurse=False)):
            shape = [min(size, ROWS) for size in param.shape]
            if param in row_counts:
                rows = [min(count, ROWS) for count in row_counts[param]]
                module.separate_rows, shape[0] = {**module.separate_rows, name: rows}, sum(rows)  # type: ignore
            small[param.shape] = torch.Size(shape)
            setattr(module, name, nn.Parameter(torch.randn(shape).to(param.dtype)))
    for path, module in model.named_modules():
        # A buffer there may be a copy of a weight.
        shapes = small if path.startswith("training_only.") else {}
        for name, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, name, torch.zeros(shapes.get(buffer.shape, buffer.shape), dtype=buffer.dtype))
    return model


def _collect(value: Any, name: str, found: dict[str, Any], seen: dict[int, Any]) -> None:
    """Add the tensors and numbers that can be reached from `value` to `found`, by the attributes that lead to them."""
    if value is None or isinstance(value, bool | int | float | str):
        found[name] = value
    elif isinstance(value, Tensor | np.ndarray):
        found[name] = torch.as_tensor(value).detach().clone()
    # Settings stay as they are. What a technique keeps in itself is found where hooks and switches hold it.
    elif id(value) not in seen and not isinstance(value, type | types.FunctionType | types.ModuleType | Config):
        # Kept, so that no other object gets its id meanwhile.
        seen[id(value)] = value
        for key, part in _parts(value).items():
            _collect(part, f"{name}.{key}" if name else str(key), found, seen)


def _parts(value: Any) -> dict[Any, Any]:
    """Return what a container or an object holds by key, by place or by attribute."""
    if isinstance(value, dict):
        # Modules and tensors as keys have no name.
        named = all(isinstance(key, str | int | tuple) for key in value)
        return value if named else dict(enumerate(value.values()))
    if isinstance(value, list | tuple | deque | set | frozenset):
        return dict(enumerate(sorted(value, key=str) if isinstance(value, set | frozenset) else value))
    if isinstance(value, nn.Module):
        own = {key: part for key, part in vars(value).items() if key not in MODULE_ATTRIBUTES}
        return {**own, **value._parameters, **value._buffers, **value._modules}
    if isinstance(value, torch.Generator):
        return {"state": value.get_state()}
    if isinstance(value, np.random.Generator):
        return dict(value.bit_generator.state)
    return getattr(value, "__dict__", {})


def _differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return sorted(name for name in one.keys() | other.keys() if not _equal(one.get(name), other.get(name)))


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        # NaN is no lost state: such a run ends as diverged.
        return a.dtype == b.dtype and a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
    return type(a) is type(b) and bool(a == b)
