"""Warm-up: untimed steps that compile and fill caches, after which everything is put back as it was."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from golf.settings.config import Config, has_stages, is_packed, micro_batch_tokens
from golf.training.loop.schedule import muon_momentum
from golf.training.loop.state import TrainState
from golf.training.loop.steps import NextBatch, TrainStep


def warm_up(cfg: Config, state: TrainState, on_step: Callable[[int], None]) -> None:
    """Run `warmup_steps` full training steps on synthetic tokens and restore weights, optimizer and random state.

    Every set of late switches that can be on during the run is run through in every stage, so that each graph is
    compiled here. Real tokens are not touched: the loader does not move, and no validation text can leak in.
    """
    if cfg.schedule.warmup_steps > 0:
        with restored(state.step):
            run_steps(cfg, state, on_step)


def run_steps(cfg: Config, state: TrainState, on_step: Callable[[int], None]) -> None:
    """Take the steps of the warm-up, and one in each graph that comes later."""
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
