"""Sums over scored targets: nats on the device in float64, tokens and bytes on the host."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from golf.bits import STANDARD, Score, bits_per_byte
from golf.training.ranks import Ranks
from golf.training.scoring.windows import Batch

Observe = Callable[[np.ndarray, np.ndarray], None]  # called with indices [n] and nats [n] of scored targets


class Watcher(Protocol):
    """Receiver of a long scoring's progress."""

    def ttt_start(self, parts: int, windows: int) -> None:
        """Begin `parts` chunks (sgd) or batches of documents (lora), with `windows` windows or documents in all."""

    def ttt_part(self, done: int, parts: int, val_bpb: float, seconds: float) -> None:
        """Note that part `done` of `parts` has ended; `val_bpb` is over what this rank has scored."""


class Tally:
    """Sums over the targets of `tokens` `[N + 1]` that this rank has scored. The clock runs from its creation.

    `target_bytes` `[N]` are the UTF-8 bytes of the text behind each target.
    """

    def __init__(self, tokens: np.ndarray, target_bytes: np.ndarray, ranks: Ranks, observe: Observe | None = None):
        self.tokens, self.target_bytes, self.ranks = tokens, target_bytes, ranks
        self.observe = observe
        # A float32 sum over millions of targets would lose digits that count, and Apple's GPUs have no float64.
        device = "cpu" if ranks.device.type == "mps" else ranks.device
        self.nats = torch.zeros((), dtype=torch.float64, device=device)
        self.scored = self.bytes = 0
        self.queued: np.ndarray | None = None  # [n, 2] in the order of their scores; None = that of the text
        self._start = time.perf_counter()

    def add(self, indices: np.ndarray, scored: np.ndarray, losses: Tensor) -> None:
        """Add `losses` in nats of the targets `indices` where `scored`; all three have one shape."""
        # Masked and not indexed: the shape of an index result would have to wait for the device.
        mask = self.ranks.send(scored)
        self.nats += losses.detach().masked_fill(~mask, 0.0).to(self.nats.device).double().sum()
        counted = indices[scored]
        self.scored += counted.size
        self.bytes += int(self.target_bytes[counted].sum(dtype=np.int64))
        if self.observe is not None:
            self.observe(counted, losses.detach().cpu().double().numpy()[scored])

    def batch_nats(self, losses_at: Callable[..., Tensor], batch: Batch) -> Tensor:
        """Return the nats `[B, S]` of the targets of `batch`."""
        return losses_at(*map(self.ranks.send, (batch.ids, batch.positions, batch.targets)))

    def asked(self, batch: Batch) -> np.ndarray:
        """Return the tokens `[K, B, S]` whose nats the scores of `batch` need, its targets first."""
        return batch.targets[None]

    def scores(self, batch: Batch, nats: Tensor) -> Tensor:
        """Return the scored nats `[B, S]` of the targets of `batch` from the `nats` `[K, B, S]` of what was `asked`."""
        return nats[0]

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def own_bpb(self) -> float:
        """Return the bits per byte of this rank's share so far; waits for the device."""
        if not self.bytes:
            return float("nan")
        return bits_per_byte(self.nats.item() / self.scored, self.scored, self.bytes)

    def score(self, how: str = STANDARD) -> Score:
        """Return the score over all ranks. Every rank has to call it."""
        nats, scored, byte_count = self.ranks.sum(self.nats.item(), self.scored, self.bytes)
        loss = nats / scored
        bpb = bits_per_byte(loss, int(scored), int(byte_count))
        return Score(loss, bpb, int(scored), int(byte_count), self.seconds, how)
