"""Adding up scored targets: nats on the device in float64, tokens and bytes on the host."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from golf.bits import STANDARD, Score, bits_per_byte
from golf.training.data.byte_tables import ByteTables
from golf.training.ranks import Ranks

Observe = Callable[[np.ndarray, np.ndarray], None]  # indices of targets, their nats, as they are scored


class Watcher(Protocol):
    """Who is told how far a long scoring is."""

    def ttt_start(self, parts: int, windows: int) -> None:
        """`parts` are chunks (sgd) or batches of documents (lora), `windows` what will be scored in all of them."""

    def ttt_part(self, done: int, parts: int, val_bpb: float, seconds: float) -> None:
        """`val_bpb` is over what this rank has scored."""


class Tally:
    """What this rank has scored of `tokens` `[N + 1]`; the clock runs from its creation."""

    def __init__(self, tokens: np.ndarray, tables: ByteTables, ranks: Ranks, observe: Observe | None = None):
        self.tokens, self.tables, self.ranks, self.observe = tokens, tables, ranks, observe
        self.nats = torch.zeros((), dtype=torch.float64, device=ranks.device)
        self.scored = self.bytes = 0
        self._start = time.perf_counter()

    def add(self, indices: np.ndarray, scored: np.ndarray, losses: Tensor) -> None:
        """`losses` in nats of the targets `indices` where `scored`, all of one shape."""
        mask = torch.from_numpy(scored).to(losses.device)
        self.nats += losses.detach().double().masked_fill(~mask, 0.0).sum()
        counted = indices[scored]
        self.scored += counted.size
        self.bytes += self.tables.count(self.tokens[counted], self.tokens[counted + 1])
        if self.observe is not None:
            self.observe(counted, losses.detach().double().cpu().numpy()[scored])

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def own_bpb(self) -> float:
        """Bits per byte of this rank's share so far; waits for the device."""
        if not self.bytes:
            return float("nan")
        return bits_per_byte(self.nats.item() / self.scored, self.scored, self.bytes)

    def score(self, how: str = STANDARD) -> Score:
        """The score over all ranks, which all have to ask for it."""
        nats, scored, byte_count = self.ranks.sum(self.nats.item(), self.scored, self.bytes)
        loss = nats / scored
        bpb = bits_per_byte(loss, int(scored), int(byte_count))
        return Score(loss, bpb, int(scored), int(byte_count), self.seconds, how)
