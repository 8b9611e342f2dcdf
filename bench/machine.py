"""The machine that is measured, and the clock for its work."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from golf.run.environment import git_state, machine_kind, package_versions


@dataclass(frozen=True)
class Machine:
    """A machine and its software."""

    kind: str
    device: str
    threads: int
    load: float  # load average of the minute before; above 0 other programs are running
    packages: dict[str, str | None]
    git: dict[str, Any]


def this_machine(device: torch.device) -> Machine:
    """Return what is known of this machine and its software."""
    return Machine(
        kind=machine_kind(),
        device=device.type,
        threads=torch.get_num_threads(),
        load=os.getloadavg()[0],
        packages=package_versions(),
        git=git_state(),
    )


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
