"""Batches made in a background thread while the device computes on earlier ones."""

from __future__ import annotations

import functools
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from golf.training.data.loader import Loader

BATCHES_AHEAD = 4


class Prefetched:
    """A loader that makes the next batches of `loader`, in its order, in a background thread.

    For a GPU the batches are in pinned memory, so that the step's non-blocking copy does not hold up the host. An error
    of the loader is raised by the `next_batch` that would have returned the batch. A thread that is never closed ends
    with the interpreter.
    """

    def __init__(self, loader: Loader, device: torch.device, ahead: int = BATCHES_AHEAD):
        self._loader, self._device = loader, device
        # A thread has a GPU of its own choice. Without it pinning would wake up GPU 0 on every rank.
        choose = functools.partial(torch.cuda.set_device, device) if device.type == "cuda" else None
        # One thread only, so that batches keep the loader's order.
        self._thread = ThreadPoolExecutor(1, "prefetch", choose)
        self._ahead: deque[Future[tuple[Tensor, Tensor]]] = deque()
        for _ in range(ahead):
            self._ahead.append(self._thread.submit(self._make))

    def next_batch(self) -> tuple[Tensor, Tensor]:
        """Return the next batch of the loader."""
        # Ordered before the wait, so that the thread always has work.
        self._ahead.append(self._thread.submit(self._make))
        return self._ahead.popleft().result()

    def close(self) -> None:
        """Wait for the current batch and end the thread."""
        self._thread.shutdown(cancel_futures=True)

    def _make(self) -> tuple[Tensor, Tensor]:
        inputs, targets = self._loader.next_batch()
        if self._device.type == "cuda":
            return inputs.pin_memory(), targets.pin_memory()
        return inputs, targets
