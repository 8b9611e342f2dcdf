"""Warm-up: untimed steps that compile and fill caches, after which everything is put back as it was."""

from __future__ import annotations

import contextlib
import copy
import functools
import re
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from golf.errors import GolfError
from golf.run.progress import Progress
from golf.settings.config import Config, has_stages, is_packed, micro_batch_tokens
from golf.training.loop.schedule import muon_momentum
from golf.training.loop.state import TrainState
from golf.training.loop.steps import NextBatch, TrainStep
from golf.words import listed

# Zero-initialised projections let gradients through to what is behind them one step later each.
STEPS_TO_MOVE = 5
TOKENS_TO_MOVE = 64


def warm_up(cfg: Config, state: TrainState, on_step: Callable[[int], None]) -> None:
    """Run `warmup_steps` full training steps on synthetic tokens and restore weights, optimizer and random state.

    Every set of late switches that can be on during the run is run through in every stage, so that each graph is
    compiled here. Real tokens are not touched: the loader does not move, and no validation text can leak in.
    """
    if cfg.schedule.warmup_steps > 0:
        with restored(state.step):
            _run_steps(cfg, state, on_step)


def proving_warm_up(cfg: Config, state: TrainState, on_step: Callable[[int], None]) -> list[str]:
    """Do what `warm_up` does. Return a sentence for each parameter that did not move and each idle switch."""
    if cfg.schedule.warmup_steps == 0:
        return []
    step, first, later = state.step, state.switches.on, state.switches.later_sets()
    # A compiled step has one shape, so only eager ones can be short.
    short = TOKENS_TO_MOVE if cfg.launch.compile == "off" else None
    with restored(step) as weights, _naming_what_has_no_gradient(step):
        _run_steps(cfg, state, on_step)
        for _ in range(cfg.schedule.warmup_steps + len(later), STEPS_TO_MOVE):
            step(lambda: synthetic_batch(cfg, short), 1.0, muon_momentum(cfg.optim, 0), first)
        failures = _unmoved(step, weights)
        # Some switches act through values in buffers, which techniques set for the end of the run here.
        state.hooks.begin_step(Progress(1, 1.0, 0.0))
        batch = synthetic_batch(cfg, short)
        if has_stages(cfg) and not short:
            batch = state.stages.cut(batch)
        return failures + _switches_without_effect(step, [first, *later], batch)


@contextlib.contextmanager
def _naming_what_has_no_gradient(step: TrainStep) -> Iterator[None]:
    """Raise `GolfError` with names for the error of DDP, which has the numbers of parameters."""
    try:
        yield
    except RuntimeError as error:
        numbers = re.search(r"did not receive grad for rank \d+: ([\d ]+)", str(error))
        if not numbers:
            raise
        learning = [name for name, param in step.model.named_parameters() if param.requires_grad]
        names = listed([learning[int(number)] for number in numbers[1].split()])
        raise GolfError(
            f"The loss does not depend on {names} in the first steps, and several ranks wait for a gradient: remove "
            "it, or multiply what it does by zero until its late switch (launch.nproc=1 waits for none)."
        ) from error


def _run_steps(cfg: Config, state: TrainState, on_step: Callable[[int], None]) -> None:
    step, momentum = state.step, muon_momentum(cfg.optim, 0)
    first, later = state.switches.on, state.switches.later_sets()
    next_batch: NextBatch = functools.partial(synthetic_batch, cfg)
    if has_stages(cfg):
        next_batch = state.stages.cutting(next_batch)
    for i in range(cfg.schedule.warmup_steps):
        step(next_batch, 1.0, momentum, first)
        on_step(i + 1)
    for active in later:
        state.hooks.switch(first, active)
        step(next_batch, 1.0, momentum, active)
    if has_stages(cfg):
        # From the last to the first, in which the run starts.
        for number in range(len(state.stages.all) - 1, -1, -1):
            state.stages.enter(number)
            for active in (first, *later):
                step(next_batch, 1.0, momentum, active)


@contextlib.contextmanager
def restored(step: TrainStep) -> Iterator[dict[str, Tensor]]:
    """Undo the steps taken in the block: restore weights, optimizer and random state. Yields the weights before.

    Muon's momentum is part of the optimizer. The public scripts with parameter banks (records 2026-04-10 … 2026-04-29)
    keep it outside of what they restore, so that their first timed step carries the momentum of the warm-up.
    """
    weights = {name: tensor.detach().clone() for name, tensor in step.model.state_dict().items()}
    # Copies, because steps change the state in place.
    optimizer_state = copy.deepcopy(step.optimizer.state_dict())
    with torch.random.fork_rng(devices=[step.device] if step.device.type == "cuda" else []):
        yield weights
    step.model.load_state_dict(weights)
    step.optimizer.load_state_dict(optimizer_state)
    step.optimizer.zero_grad()


def _unmoved(step: TrainStep, before: dict[str, Tensor]) -> list[str]:
    """Return a sentence for every parameter that did not move although its learning rate is not zero."""
    # A learning rate of zero is a choice, and such a parameter may stay where it is.
    frozen = {id(p) for part in step.optimizer.parts() if part.lr == 0 for p in part.params}
    named = ((name, p) for name, p in step.model.named_parameters() if id(p) not in frozen)
    # A model of one layer has no U-net skip, and its skip_weights have no row.
    still = [name for name, p in named if p.numel() and torch.equal(p, before[name])]
    return [f"parameter {name} did not move in {STEPS_TO_MOVE} steps" for name in still]


def _switches_without_effect(step: TrainStep, sets: list[tuple[str, ...]], batch: tuple[Tensor, Tensor]) -> list[str]:
    """Return a sentence for every switch that leaves the loss as it is, in the very graphs that will train."""
    inputs, targets = (t.to(step.device) for t in batch)
    losses = {}
    # Sets that the run can reach, so that no graph is compiled for the check alone.
    for active in sets:
        # Equal draws, or dropout would seem to be the effect of a switch.
        torch.manual_seed(0)
        losses[active] = step.model(inputs, targets, active).item()
    pairs = [(name, tuple(n for n in active if n != name), loss) for active, loss in losses.items() for name in active]
    idle = {name for name, others, loss in pairs if losses.get(others) == loss}
    return [f"late switch {name} changed nothing when it was switched on" for name in sorted(idle)]


def synthetic_batch(cfg: Config, tokens: int | None = None) -> tuple[Tensor, Tensor]:
    """Return inputs and targets `[B, T]` of random tokens on the CPU: one micro-batch, or one sequence of `tokens`.

    `tokens` beyond the training sequence length are cut off. A loader of packed rows has one row in a micro-batch.
    """
    local_tokens = micro_batch_tokens(cfg)
    seq_len = local_tokens if is_packed(cfg) else cfg.data.train_seq_len
    shape = (local_tokens // seq_len, seq_len + 1) if tokens is None else (1, min(tokens, seq_len) + 1)
    ids = torch.randint(cfg.model.vocab_size, shape)
    # With a loader's strides, for which compiled code is specialised. `contiguous` would keep those of a single row.
    inputs, targets = (part.clone(memory_format=torch.contiguous_format) for part in (ids[:, :-1], ids[:, 1:]))
    return inputs, targets
