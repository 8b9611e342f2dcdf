"""The matrix products of a training step, each on its own with its operands in the cache: a limit for the rest."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from bench.step import prepared_step
from bench.table import Row
from bench.tokens import random_dataset
from golf.settings.config import Config
from golf.training.data.batches import open_loader
from golf.training.ranks import Ranks

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
CALLS = 5  # of which the fastest counts


class _Operand(NamedTuple):
    """Shape and layout of a matrix or of a batch of them."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    def made(self, device: torch.device) -> Tensor:
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=device).fill_(0.5)


Product = tuple[Any, tuple[_Operand, ...]]  # the operation and its operands


class _Recorder(TorchDispatchMode):
    """Counts the products that are called within it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[Product] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in PRODUCTS:
            tensors = [t for t in args if isinstance(t, Tensor)]
            called = func.overloadpacket.default
            self.calls[called, tuple(_Operand(tuple(t.shape), t.stride(), t.dtype) for t in tensors)] += 1
        return func(*args, **(kwargs or {}))


def product_rows(cfg: Config, device: torch.device, rounds: int) -> list[Row]:
    """Return one row: the seconds of all matrix products of an eager training step of `cfg`, one after the other."""
    calls = recorded(cfg, device)
    flops = sum(count * _flops(product) for product, count in calls.items())
    seconds = [sum(count * _fastest(product, device) for product, count in calls.items()) for _ in range(rounds)]
    dtype, tokens = cfg.model.compute_dtype, cfg.data.train_batch_tokens
    note = f"{sum(calls.values()):,} products of {len(calls)} shapes"
    return [Row("products", f"{cfg.name} compile=off {dtype}", seconds, tokens, flops, dtype, note=note)]


def recorded(cfg: Config, device: torch.device) -> Counter[Product]:
    """Return how often a training step of `cfg` calls each product."""
    step, recorder = prepared_step(cfg, device), _Recorder()
    with open_loader(cfg, random_dataset(cfg), Ranks(device=device)) as loader:
        step(loader.next_batch, 1.0, 0.95)
        with recorder:
            step(loader.next_batch, 1.0, 0.95)
    return recorder.calls


def _flops(product: Product) -> int:
    """Return the floating-point operations of a product, by the shapes of its last two operands."""
    left, right = (operand.shape for operand in product[1][-2:])
    batch = left[0] if len(left) == 3 else 1
    return 2 * batch * left[-2] * left[-1] * right[-1]


def _fastest(product: Product, device: torch.device) -> float:
    """Return the seconds of the fastest of a few calls, which find their operands in the cache."""
    call, operands = product
    tensors = [operand.made(device) for operand in operands]
    taken = []
    for _ in range(CALLS):
        start = time.perf_counter()
        call(*tensors)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - start)
    return min(taken)
