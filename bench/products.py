"""The operations of a training step and of a sliding score, each on its own with its operands in the cache.

They are limits. The first has the matrix products alone, and those of attention where torch's kernel computes them. The
second has all operations of the eager code, and what is lacking to the measured time are operands that have left the
cache and the calls of Python and autograd.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from bench.scoring import score_ways, with_stride
from bench.step import prepared_step
from bench.table import Row
from bench.tokens import random_dataset
from golf.settings.config import Config, eval_seq_len
from golf.training.data.batches import open_loader
from golf.training.ranks import Ranks

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
ATTENTION = "scaled_dot_product"  # in the names of torch's kernels
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
        return self.call.overloadpacket.__name__ in PRODUCTS or self.is_attention

    @property
    def is_attention(self) -> bool:
        return ATTENTION in self.call.overloadpacket.__name__

    @property
    def flops(self) -> int:
        """Return the floating-point operations of a product, by the shapes of its last two operands.

        Those of attention are of its two products, the masked half left out.
        """
        if self.is_attention:
            batch, heads, tokens, dim = self.arguments[0].shape
            return 2 * batch * heads * tokens * tokens * dim
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


def product_rows(cfg: Config, device: torch.device, rounds: int, sequences: int) -> list[Row]:
    """Return the seconds of the products, and of all operations, of an eager training step and of a sliding score."""
    cfg = with_stride(cfg)
    score = score_ways(cfg, random_dataset(cfg, sequences), device)["sliding"]
    scored = sequences * eval_seq_len(cfg)
    step = limit_rows("", recorded_step(cfg, device), cfg, cfg.data.train_batch_tokens, device, rounds)
    return [*step, *limit_rows("sliding score's ", recorded(score), cfg, scored, device, rounds)]


def limit_rows(
    whose: str, calls: Counter[Operation], cfg: Config, tokens: int, device: torch.device, rounds: int
) -> list[Row]:
    """Return the rows of the products among `calls`, and of all of them; the work is over `tokens` tokens."""
    products = {operation: count for operation, count in calls.items() if operation.is_product}
    flops, rows = sum(count * operation.flops for operation, count in products.items()), []
    for what, chosen in (("products", products), ("operations", calls)):
        seconds = [sum(count * operation.fastest(device) for operation, count in chosen.items()) for _ in range(rounds)]
        note = f"{sum(chosen.values()):,} {what} of {len(chosen)} kinds"
        dtype = cfg.eval.dtype if whose else cfg.model.compute_dtype
        rows.append(Row("products", f"{cfg.name} {whose}{what} {dtype}", seconds, tokens, flops, dtype, note=note))
    return rows


def recorded_step(cfg: Config, device: torch.device) -> Counter[Operation]:
    """Return how often a training step of `cfg` calls each operation."""
    step = prepared_step(cfg, device)
    with open_loader(cfg, random_dataset(cfg), Ranks(device=device)) as loader:
        return recorded(lambda: step(loader.next_batch, 1.0, 0.95))


def recorded(call: Callable[[], object]) -> Counter[Operation]:
    """Return how often the second call of `call` calls each operation."""
    call()
    with _Recorder() as recorder:
        call()
    return recorder.calls
