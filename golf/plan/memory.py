"""The least memory that training a model takes, compared with the machine's before anything is allocated."""

from __future__ import annotations

import torch

from golf.errors import GolfError
from golf.settings.config import Config
from golf.settings.hardware import memory_bytes
from golf.training.model.build import shapeless_model

# Weights and gradients in fp32. Momentum, activations and the scoring copy come on top, so this is a lower bound.
LEAST_BYTES_A_PARAMETER = 8


def check_memory(cfg: Config) -> None:
    """Raise `GolfError` if the weights and gradients alone do not fit into this machine's memory.

    The kernel kills such a process without a word, and on a GPU the run ends after minutes of set-up.
    """
    cuda = cfg.launch.device == "cuda"
    available = _gpu_bytes() if cuda else memory_bytes()
    params = sum(parameter.numel() for parameter in shapeless_model(cfg).parameters())
    # Each rank has a GPU of its own, but all ranks on a CPU share the memory.
    copies = 1 if cuda else cfg.launch.nproc
    wanted = LEAST_BYTES_A_PARAMETER * params * copies
    if available is not None and wanted > available:
        where = "a GPU" if cuda else "this machine"
        ranks = f" on {copies} ranks" if copies > 1 else ""
        raise GolfError(
            f"The model has {params:,} parameters: weights and gradients alone take {wanted / 1e9:,.0f} GB{ranks}, and "
            f"{where} has {available / 1e9:,.0f} GB. Choose fewer or narrower layers."
        )


def _gpu_bytes() -> int | None:
    """Return the memory of the smallest visible GPU; None without one."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return min((torch.cuda.get_device_properties(i).total_memory for i in range(count)), default=None)
