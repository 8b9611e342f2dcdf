"""Loaders: the protocol, and the baseline's sequential loader, which reads shard after shard and wraps around."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from golf.errors import GolfError
from golf.training.ranks import ALONE, Ranks


class Loader(Protocol):
    """An endless supply of this rank's micro-batches."""

    def next_batch(self) -> tuple[Tensor, Tensor]:
        """Return inputs and targets, `[B, T]` int64 each, on the CPU."""


class SkippingLoader(Loader, Protocol):
    """A loader that can begin anywhere."""

    def skip(self, batches: int) -> None:
        """Skip `batches` micro-batches without reading them."""


class SequentialLoader:
    """Micro-batches for one rank out of a single token stream that all ranks share.

    Every micro-batch takes `W · (local_tokens + 1)` contiguous tokens; rank r keeps the r-th span of `local_tokens +
    1`, inputs and targets shifted by one. The tokens of a step therefore depend on `W · A` (ranks × accumulation steps)
    only, not on the split between the two.
    """

    def __init__(
        self, shards: Sequence[np.ndarray], *, local_tokens: int, seq_len: int, vocab_size: int, ranks: Ranks = ALONE
    ):
        self.shards = [s for s in shards if s.size]
        self.local_tokens, self.seq_len, self.vocab_size = local_tokens, seq_len, vocab_size
        self.rank, self.world_size = ranks.rank, ranks.world_size
        self.ends = np.cumsum([s.size for s in self.shards])
        if not self.shards:
            raise GolfError("The training shards hold no tokens at all: fetch or make some.")
        self.position = 0  # tokens of the stream consumed by all ranks together

    def next_batch(self) -> tuple[Tensor, Tensor]:
        """Return inputs and targets, `[local_tokens / seq_len, seq_len]` int64 each, on the CPU."""
        span = self.local_tokens + 1
        # Spans do not overlap: the last target of one is not the first input of the next, as in the public baseline.
        tokens = self._read(self.position + self.rank * span, span)
        self.position += self.world_size * span
        check_tokens(tokens, self.vocab_size, "training")
        batch = torch.from_numpy(tokens)
        return batch[:-1].view(-1, self.seq_len), batch[1:].view(-1, self.seq_len)

    def skip(self, batches: int) -> None:
        """Skip `batches` micro-batches without reading them."""
        self.position += batches * self.world_size * (self.local_tokens + 1)

    def _read(self, start: int, count: int) -> np.ndarray:
        """Read `count` tokens of the endless stream from `start`, as int64."""
        parts, total = [], int(self.ends[-1])
        while count:
            start %= total
            # From the right, because the token at a shard's end is the first of the next shard.
            shard = int(np.searchsorted(self.ends, start, side="right"))
            offset = start - (int(self.ends[shard - 1]) if shard else 0)
            part = self.shards[shard][offset : offset + count]
            parts.append(part)
            start, count = start + part.size, count - part.size
        return np.concatenate(parts).astype(np.int64)


def check_tokens(tokens: np.ndarray, vocab_size: int, split: str) -> None:
    """Raise `GolfError` for tokens of a `split` beyond the vocabulary, on which an embedding would crash."""
    if (largest := int(tokens.max(initial=0))) >= vocab_size:
        raise GolfError(
            f"The {split} shards hold token {largest}, but the vocabulary ends at {vocab_size - 1}: "
            "use the tokenizer they were made with and set data.vocab_size to its size."
        )


def listed_first(shards: Sequence[np.ndarray], listed: Sequence[int]) -> list[np.ndarray]:
    """Return `shards` in the order of `data.shard_order`: the `listed` indices first, then the rest (PR #650)."""
    for place, index in enumerate(listed):
        if not 0 <= index < len(shards):
            raise GolfError(
                f"data.shard_order lists shard {index}, but the {len(shards)} training shards are numbered "
                f"0 to {len(shards) - 1}: leave it out or fetch more shards."
            )
        if index in listed[:place]:
            raise GolfError(f"data.shard_order lists shard {index} twice: name every shard once at most.")
    return [shards[i] for i in (*listed, *[i for i in range(len(shards)) if i not in listed])]
