"""The least memory that a run takes, which the machine has to have."""

from __future__ import annotations

import torch

from golf.errors import GolfError
from golf.settings.config import Config
from golf.settings.hardware import memory_bytes
from golf.training.model.build import shapeless_model

# Weights and gradients in fp32. Momentum, activations and the scoring copy come on top, so this is a lower bound.
LEAST_BYTES_A_PARAMETER = 8
# The input of a layer in bf16, for each token and channel: another lower bound.
LEAST_BYTES_AN_ACTIVATION = 2


def check_memory(cfg: Config) -> None:
    """Raise `GolfError` if weights and gradients, or the activations of a micro-batch, do not fit into the memory.

    The kernel kills such a process without a word, and on a GPU the run ends after minutes of set-up.
    """
    cuda = cfg.launch.device == "cuda"
    if (available := _gpu_bytes() if cuda else memory_bytes()) is None:
        return
    where = f"{'a GPU' if cuda else 'this machine'} has {available / 1e9:,.0f} GB"
    # Each rank has a GPU of its own, but all ranks on a CPU share the memory.
    copies = 1 if cuda else cfg.launch.nproc
    ranks = f" on {copies} ranks" if copies > 1 else ""
    params = sum(parameter.numel() for parameter in shapeless_model(cfg).parameters())
    if (wanted := LEAST_BYTES_A_PARAMETER * params * copies) > available:
        raise GolfError(
            f"The model has {params:,} parameters: weights and gradients alone take {wanted / 1e9:,.0f} GB{ranks}, and "
            f"{where}. Choose fewer or narrower layers."
        )
    # Training keeps the input of every layer for the backward pass, scoring that of one layer at a time.
    for key, tokens, layers in (
        ("data.train_batch_tokens", cfg.data.train_batch_tokens, cfg.model.num_layers),
        ("eval.val_batch_tokens", cfg.eval.val_batch_tokens, 1),
    ):
        at_once = tokens // cfg.data.micro_batches
        wanted = LEAST_BYTES_AN_ACTIVATION * at_once * cfg.model.model_dim * layers * copies
        if wanted > available:
            raise GolfError(
                f"A micro-batch of {key} has {at_once:,} tokens, which take at least {wanted / 1e9:,.0f} GB{ranks}, "
                f"and {where}. Lower {key} or raise data.micro_batches."
            )


def _gpu_bytes() -> int | None:
    """Return the memory of the smallest visible GPU; None without one."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return min((torch.cuda.get_device_properties(i).total_memory for i in range(count)), default=None)
