"""Untimed steps before the clock: compile, fill caches, then put everything back as it was."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from golf.config import Config
from golf.loop.schedule import muon_momentum
from golf.loop.steps import TrainStep


def warm_up(cfg: Config, step: TrainStep, on_step: Callable[[int], None]) -> None:
    """Run `warmup_steps` full training steps on synthetic tokens and restore weights, optimizer and random state.

    Real tokens are not touched: neither the loader moves nor could validation text leak in.
    """
    if cfg.schedule.warmup_steps == 0:
        return
    model, optimizer = step.model, step.optimizer
    weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    optimizer_state = copy.deepcopy(optimizer.state_dict())
    cuda_devices = [step.device] if step.device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda_devices):
        for i in range(cfg.schedule.warmup_steps):
            step(lambda: synthetic_batch(cfg), 1.0, muon_momentum(cfg.optim, 0))
            on_step(i + 1)
    model.load_state_dict(weights)
    optimizer.load_state_dict(optimizer_state)
    optimizer.zero_grad()


def synthetic_batch(cfg: Config) -> tuple[Tensor, Tensor]:
    """Inputs and targets of one micro-batch of uniformly random tokens, on the CPU."""
    sequences = cfg.data.train_batch_tokens // cfg.data.micro_batches // cfg.data.train_seq_len
    ids = torch.randint(cfg.model.vocab_size, (sequences, cfg.data.train_seq_len + 1))
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
