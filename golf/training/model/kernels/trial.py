"""The trial of a kernel on this device: whether it gives what torch's operations give, and whether it is faster."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

LARGEST_DISTANCE = 0.02  # relative distance from torch's results in bf16, whose own roundings are 0.004
# Error of a single number, as a share of the largest one: one wrong tile among thousands hardly shows in a norm.
LARGEST_DEVIATION = 0.05
UNTIMED_RUNS, TIMED_RUNS = 3, 10

Passes = Callable[[], list[Tensor]]


class Rivals(NamedTuple):
    """Two functions that should give the same tensor, and the tensors that they are tried on."""

    ours: Callable[..., Tensor]
    torchs: Callable[..., Tensor]
    inputs: Sequence[Tensor]


class Outcome(NamedTuple):
    """Result of a trial of a kernel."""

    reason: str  # why ours cannot be used; empty if it can
    ours_ms: float = 0.0  # time of a forward and backward pass
    torchs_ms: float = 0.0


def trial(rivals: Rivals, *, compiled: bool) -> Outcome:
    """Compare results and gradients, then take times; `compiled` says whether the model will be."""
    ours, torchs = (_passes(function, rivals.inputs, compiled) for function in (rivals.ours, rivals.torchs))
    for mine, other in zip(ours(), torchs(), strict=True):
        if reason := difference(mine, other):
            return Outcome(reason)
    return Outcome("", milliseconds(ours), milliseconds(torchs))


def _passes(function: Callable[..., Tensor], inputs: Sequence[Tensor], compiled: bool) -> Passes:
    """Return a function that runs forward and backward and returns the result and the gradients."""
    if compiled:
        function = torch.compile(function, dynamic=False, fullgraph=True)
    inputs = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in inputs]
    differentiable = [t for t in inputs if t.requires_grad]

    grads: list[Tensor] = []

    def run() -> list[Tensor]:
        y = function(*inputs)
        if not grads:
            # The same for both rivals.
            grads.append(torch.randn(y.shape, device=y.device, generator=seeded(y.device)).to(y.dtype))
        return [y.detach(), *torch.autograd.grad(y, differentiable, grads)]

    return run


def seeded(device: torch.device) -> torch.Generator:
    """Return a source of random numbers for trials, so that those of the training stay what they are."""
    return torch.Generator(device).manual_seed(0)


def difference(ours: Tensor, torchs: Tensor) -> str:
    """Return how `ours` differs from `torchs` beyond what rounding explains; empty if it does not."""
    error, size = (ours.float() - torchs.float()).abs(), torchs.float().abs()
    distance, deviation = float(error.norm() / size.norm()), float(error.max() / size.max())
    # The comparison is false for what is not a number.
    if distance <= LARGEST_DISTANCE and deviation <= LARGEST_DEVIATION:
        return ""
    return f"its results differ from torch's by {distance:.1e}, single ones by {deviation:.1e} of the largest"


def milliseconds(run: Passes) -> float:
    """Return the median time of a run on the current device."""
    times = []
    for _ in range(UNTIMED_RUNS + TIMED_RUNS):
        start = time.perf_counter()
        run()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times[UNTIMED_RUNS:])
