"""Processes that train together: this process's rank, and the numbers and tensors that ranks exchange."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Ranks:
    """This process among `world_size` processes."""

    rank: int = 0
    world_size: int = 1
    device: torch.device = CPU  # device of this rank's tensors

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def sum(self, *values: float) -> list[float]:
        """Return the sums of `values` over all ranks, in float64 and without waiting for the device."""
        if self.world_size == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor)
        return tensor.tolist()

    def sum_tensors(self, tensors: Sequence[Tensor]) -> None:
        """Replace `tensors`, on `device`, by their sums over all ranks."""
        if self.world_size > 1:
            for tensor in tensors:
                dist.all_reduce(tensor)

    def share(self, items: int) -> tuple[int, int]:
        """Return first and end of this rank's part of `items` items. Parts may be empty and differ by one at most."""
        return items * self.rank // self.world_size, items * (self.rank + 1) // self.world_size

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self.sum(0.0)


ALONE = Ranks()  # one process on the CPU


def join_ranks(device: str) -> Ranks:
    """Join the process group that torchrun describes in the environment; without one, this process is alone."""
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    own_device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if device == "cuda" else CPU
    if device == "cuda":
        torch.cuda.set_device(own_device)
    if "WORLD_SIZE" in os.environ and not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo")
    return Ranks(rank, world_size, own_device)


def leave_ranks() -> None:
    """Leave the group, if this process is in one."""
    if dist.is_initialized():
        dist.destroy_process_group()
