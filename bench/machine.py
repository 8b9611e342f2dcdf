"""The machine and its measured peaks: FLOP/s of matrix products and bytes a second of a copy."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from golf.run.environment import git_state, machine_kind, package_versions
from golf.training.model.layers import embed_dtype

MATRIX_SIZES = {"cpu": (1024, 2048), "cuda": (4096, 8192)}
COPY_BYTES = {"cpu": 1 << 28, "cuda": 1 << 31}


@dataclass(frozen=True)
class Machine:
    """A machine, its software and its measured peaks."""

    kind: str
    device: str
    threads: int
    load: float  # load average of the minute before; above 0 other programs are running
    packages: dict[str, str | None]
    git: dict[str, Any]
    matmul_flops: dict[str, float]  # FLOP/s of a matrix product by dtype (fp32, bf16)
    bytes_per_second: float  # bytes that a copy reads and writes

    def floor_seconds(self, dtype: str, flops: float = 0.0, moved_bytes: float = 0.0) -> float:
        """Return the least seconds for so many operations and bytes here: the longer time of the two."""
        return max(flops / self.matmul_flops[dtype], moved_bytes / self.bytes_per_second)


def measure_machine(device: torch.device, dtypes: list[str], rounds: int) -> Machine:
    """Measure the machine; the peaks are the best of `rounds` tries, which other work disturbs least."""
    return Machine(
        kind=machine_kind(),
        device=device.type,
        threads=torch.get_num_threads(),
        load=os.getloadavg()[0],
        packages=package_versions(),
        git=git_state(),
        matmul_flops={dtype: _matmul_flops(device, dtype, rounds) for dtype in dtypes},
        bytes_per_second=_copy_speed(device, rounds),
    )


def _matmul_flops(device: torch.device, dtype: str, rounds: int) -> float:
    best = 0.0
    for size in MATRIX_SIZES[device.type]:
        # Random numbers: GPUs compress constant memory and then look faster than they are.
        a, b = (torch.randn(size, size, device=device).to(embed_dtype(dtype)) for _ in range(2))
        multiply = functools.partial(torch.mm, a, b, out=torch.empty_like(a))
        best = max(best, 2 * size**3 / _best_seconds(multiply, device, rounds))
    return best


def _copy_speed(device: torch.device, rounds: int) -> float:
    source = torch.randn(COPY_BYTES[device.type] // 4, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / _best_seconds(lambda: target.copy_(source), device, rounds)


def _best_seconds(work: Callable[[], Tensor], device: torch.device, rounds: int) -> float:
    work()
    return min(seconds_of(work, device) for _ in range(rounds))


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of one call of `work`, until the device has finished."""
    synchronize(device)
    start = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - start


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished. A CPU has finished when the call returns."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
