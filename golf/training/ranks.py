"""Processes that train together: this process's rank, and the numbers and tensors that ranks exchange."""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from golf.errors import GolfError

T = TypeVar("T")
CPU = torch.device("cpu")
# Longer than the first rank takes to quantize and pack while the others wait.
TIMEOUT_MINUTES = 20


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
        # Tensors on the CPU travel by gloo, so that the GPU's queue need not end first.
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor)
        return tensor.tolist()

    def send(self, array: np.ndarray) -> Tensor:
        """Return a copy of `array` on `device`, without waiting for what the device is at."""
        tensor = torch.from_numpy(array)
        if self.device.type == "cuda":
            # From other memory the copy would wait.
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=self.device.type == "cuda")

    def gather(self, items: list[T]) -> list[T]:
        """Return the items of all ranks, objects that can be pickled, in the order of the ranks."""
        if self.world_size == 1:
            return items
        parts: list[list[T]] = [[] for _ in range(self.world_size)]
        dist.all_gather_object(parts, items)
        return [item for part in parts for item in part]

    def of_first(self, value: T) -> T:
        """Return the first rank's `value`, any object that can be pickled, on every rank."""
        if self.world_size == 1:
            return value
        shared = [value]
        # On the CPU, by gloo.
        dist.broadcast_object_list(shared, device=CPU)
        return shared[0]

    def sum_tensors(self, tensors: Sequence[Tensor]) -> None:
        """Replace `tensors`, on `device`, by their sums over all ranks: one reduction for each dtype."""
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors) if self.world_size > 1 else ():
            same = [tensor for tensor in tensors if tensor.dtype == dtype]
            # One buffer, because each of many small reductions would cost its own latency.
            flat = torch.cat([tensor.flatten() for tensor in same])
            dist.all_reduce(flat)
            parts = flat.split([tensor.numel() for tensor in same])
            torch._foreach_copy_(same, [part.view_as(tensor) for part, tensor in zip(parts, same, strict=True)])

    def share(self, items: int) -> tuple[int, int]:
        """Return first and end of this rank's part of `items` items. Parts may be empty and differ by one at most."""
        return items * self.rank // self.world_size, items * (self.rank + 1) // self.world_size

    def first(self, value: float) -> float:
        """Return the first rank's `value` on every rank."""
        # The other ranks add zero, so that the sum is the first rank's.
        return self.sum(value if self.is_first else 0.0)[0]

    def synchronize(self) -> None:
        """Wait until this rank's device has done what is queued on it."""
        torch.get_device_module(self.device).synchronize()

    def barrier(self) -> None:
        """Wait until every rank is here."""
        # A sum returns nowhere before every rank has given its number.
        self.sum(0.0)


ALONE = Ranks()  # one process on the CPU


def join_ranks(device: str, expected: int) -> Ranks:
    """Join the process group that torchrun describes in the environment; without one, this process is alone.

    Raises `GolfError` if the group has not the `expected` number of ranks: every step would have other tokens.
    """
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if world_size != expected:
        raise GolfError(
            f"the configuration is for {expected} ranks, but WORLD_SIZE={world_size}: start golf with python, and "
            "launch.nproc says how many ranks it starts."
        )
    own_device = torch.device(device)
    if device == "cuda":
        own_device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        # Otherwise what is sent to plain "cuda" would land on the first GPU from every rank.
        torch.cuda.set_device(own_device)
    # Some clouds set WORLD_SIZE=1, without the address that a group is joined by. A process that is alone has none.
    if world_size > 1 and not dist.is_initialized():
        # Gradients travel between GPUs, single numbers and sentences between CPUs.
        backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
        # With its device NCCL connects here, not at the first step. A lost rank must not hold the others for long.
        here = own_device if device == "cuda" else None
        dist.init_process_group(backend, device_id=here, timeout=datetime.timedelta(minutes=TIMEOUT_MINUTES))
    return Ranks(rank, world_size, own_device)


def leave_ranks() -> None:
    """Leave the group, if this process is in one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def end_rank(code: int) -> None:
    """End this process with exit status `code` if torchrun has started it. A process that is alone returns.

    DDP's reducer keeps the group and so Gloo's threads, even when both are gone in Python. A thread that wants Python's
    lock while the interpreter is taken down aborts the process, and torchrun then stops the ranks that still work
    (pytorch/pytorch#179291). So the interpreter is not taken down.
    """
    if "WORLD_SIZE" in os.environ:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
