"""Batches cut out of the shards window by window, in an order that is drawn for a whole optimizer step at a time.

A window is `seq_len + 1` tokens of one shard: a sequence and its targets. Windows of a pass lie on a grid of blocks
`seq_len` apart, so that every token is a target once. `coprime` and `shuffled` are such orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from golf.errors import GolfError
from golf.training.data.loader import check_tokens
from golf.training.ranks import ALONE, Ranks


class WindowOrder(Protocol):
    """An endless order of windows."""

    def draw(self, count: int) -> np.ndarray:
        """Return the next `count` windows, int64 `[count, 2]`: index of the shard, first token in it."""


class WindowLoader:
    """Micro-batches for one rank out of windows whose order all ranks draw alike.

    One list is drawn per optimizer step; micro-batch m of the step's M takes windows m, m + M, m + 2M, … of it, and
    rank r of W runs the micro-batches r, r + W, …. With W = M = 8 that is the records' `windows[r::W]`; with fewer
    ranks and more accumulation every micro-batch still holds the same windows.
    """

    def __init__(
        self,
        shards: Sequence[np.ndarray],
        order: WindowOrder,
        *,
        micro_batches: int,
        local_tokens: int,
        seq_len: int,
        vocab_size: int,
        ranks: Ranks = ALONE,
    ):
        self.shards, self.order = shards, order
        self.micro_batches, self.sequences = micro_batches, local_tokens // seq_len
        self.seq_len, self.vocab_size = seq_len, vocab_size
        self.rank, self.world_size = ranks.rank, ranks.world_size
        self.micro = micro_batches  # next micro-batch of the step; at its end, so that the first call draws one
        self.windows = np.empty((0, 2), dtype=np.int64)  # windows of this step, all ranks'

    def next_batch(self) -> tuple[Tensor, Tensor]:
        """Return inputs and targets, `[local_tokens / seq_len, seq_len]` int64 each, on the CPU."""
        own = self._next_windows()
        tokens = np.stack([self.shards[shard][first : first + self.seq_len + 1] for shard, first in own])  # [B, T+1]
        check_tokens(tokens, self.vocab_size, "training")
        # Copied by numpy: torch would wake up a pool of threads for it, one more for each thread that asks.
        return torch.from_numpy(tokens[:, :-1].astype(np.int64)), torch.from_numpy(tokens[:, 1:].astype(np.int64))

    def skip(self, batches: int) -> None:
        """Skip `batches` micro-batches: their windows are drawn, their tokens are not read."""
        for _ in range(batches):
            self._next_windows()

    def _next_windows(self) -> np.ndarray:
        """Return this rank's windows of its next micro-batch, `[B, 2]`."""
        if self.micro == self.micro_batches:
            self.windows, self.micro = self.order.draw(self.micro_batches * self.sequences), 0
        own = self.windows[self.micro + self.rank :: self.micro_batches]
        self.micro += self.world_size
        return own


def usable_shards(sizes: Sequence[int], seq_len: int) -> list[int]:
    """Return the indices of the shards that hold a window. `sizes` are the shards' tokens."""
    if not (usable := [i for i, tokens in enumerate(sizes) if tokens > seq_len]):
        raise GolfError(
            f"None of the {len(sizes)} training shards holds a sequence of {seq_len} tokens and its last target: "
            "lower data.train_seq_len or make longer shards."
        )
    return usable


def draw_phase(tokens: int, seq_len: int, random: np.random.Generator) -> tuple[int, int]:
    """Draw where a new pass over a shard of `tokens` begins. Returns the first token and the number of blocks (≥ 1)."""
    # A phase of `seq_len` or more would only leave blocks out, and one whole window has to be left.
    phase = int(random.integers(min(seq_len, tokens - seq_len)))
    return phase, (tokens - 1 - phase) // seq_len
