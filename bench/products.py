"""The operations of a training step, each on its own with its operands in the cache: limits for the step.

The first limit has the matrix products alone. The second has all operations of the eager step, and what is lacking to
the measured step are operands that have left the cache and the calls of Python and autograd.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from bench.step import prepared_step
from bench.table import Row
from bench.tokens import random_dataset
from golf.settings.config import Config
from golf.training.data.batches import open_loader
from golf.training.ranks import Ranks

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
CALLS = 5  # of which the fastest counts


class _Operand(NamedTuple):
    """Shape and layout of a tensor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    def made(self, device: torch.device) -> Tensor:
        tensor = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=device)
        # Halves are neither slow numbers nor outside of any function's domain; integers are indices.
        return tensor.fill_(0.5) if self.dtype.is_floating_point else tensor.zero_()


class Operation(NamedTuple):
    """A call of a function of torch: its arguments in a flat list, tensors as operands, and how they are nested."""

    call: Any
    arguments: tuple[Any, ...]
    nesting: TreeSpec

    @property
    def is_product(self) -> bool:
        return self.call.overloadpacket.__name__ in PRODUCTS

    @property
    def flops(self) -> int:
        """Return the floating-point operations of a product, by the shapes of its last two operands."""
        left, right = [a.shape for a in self.arguments if isinstance(a, _Operand)][-2:]
        batch = left[0] if len(left) == 3 else 1
        return 2 * batch * left[-2] * left[-1] * right[-1]

    def fastest(self, device: torch.device) -> float:
        """Return the seconds of the fastest of a few calls, which find their operands in the cache."""
        flat = [a.made(device) if isinstance(a, _Operand) else a for a in self.arguments]
        args, kwargs = tree_unflatten(flat, self.nesting)
        taken = []
        for _ in range(CALLS):
            start = time.perf_counter()
            self.call(*args, **kwargs)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            taken.append(time.perf_counter() - start)
        return min(taken)


class _Recorder(TorchDispatchMode):
    """Counts the operations that are called within it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[Operation] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        flat, nesting = tree_flatten((args, kwargs or {}))
        arguments = tuple(_Operand(tuple(a.shape), a.stride(), a.dtype) if isinstance(a, Tensor) else a for a in flat)
        self.calls[Operation(func, arguments, nesting)] += 1
        return func(*args, **(kwargs or {}))


def product_rows(cfg: Config, device: torch.device, rounds: int) -> list[Row]:
    """Return two rows for an eager training step of `cfg`: the seconds of its products, and of all its operations."""
    calls = recorded(cfg, device)
    products = {operation: count for operation, count in calls.items() if operation.is_product}
    flops = sum(count * operation.flops for operation, count in products.items())
    return [
        _row("products", products, cfg, flops, device, rounds),
        _row("operations", calls, cfg, flops, device, rounds),
    ]


def _row(what: str, calls: dict[Operation, int], cfg: Config, flops: int, device: torch.device, rounds: int) -> Row:
    seconds = [sum(count * operation.fastest(device) for operation, count in calls.items()) for _ in range(rounds)]
    dtype, tokens = cfg.model.compute_dtype, cfg.data.train_batch_tokens
    note = f"{sum(calls.values()):,} {what} of {len(calls)} kinds"
    return Row("products", f"{cfg.name} {what} {dtype}", seconds, tokens, flops, dtype, note=note)


def recorded(cfg: Config, device: torch.device) -> Counter[Operation]:
    """Return how often a training step of `cfg` calls each operation."""
    step, recorder = prepared_step(cfg, device), _Recorder()
    with open_loader(cfg, random_dataset(cfg), Ranks(device=device)) as loader:
        step(loader.next_batch, 1.0, 0.95)
        with recorder:
            step(loader.next_batch, 1.0, 0.95)
    return recorder.calls
