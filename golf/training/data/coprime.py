"""The coprime-stride order: every batch mixes windows of many shards, each shard strides through its blocks.

After openai/parameter-golf PR #726 and record 2026-03-29_Loader_FullGPTQ_XSA11_BigramHash2816, with three differences:
the seed is a setting instead of a fold of the data's path; the windows of a step are drawn together, where upstream
draws those of each accumulation step apart; and W in the bounds on the number of shards is the number of micro-batches
(of which the record's 8 ranks run one each), so that the ranks at hand change nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from golf.training.data.windows import draw_phase, usable_shards

MIXING_STEPS = 1800  # steps until the mixture is at its broadest
WEIGHT_EXPONENT = (0.90, 0.50)  # exponent of a shard's remaining blocks, at the first step and after MIXING_STEPS
FEWEST_SHARDS, MOST_SHARDS = 8, 32  # distinct shards in a step at the same two times; at least W and 8 W
SHARDS_PER_MICRO_BATCH = 8


class Cursor:
    """A walk over one shard's blocks, each once a pass: the j-th is block (start + j · stride) mod blocks."""

    def __init__(self, tokens: int, seq_len: int, random: np.random.Generator):
        self.tokens, self.seq_len, self.random = tokens, seq_len, random
        self._begin_pass()

    def _begin_pass(self) -> None:
        # A new phase cuts the shard at other places, so that a second pass hardly repeats a window.
        self.phase, self.blocks = draw_phase(self.tokens, self.seq_len, self.random)
        self.start, self.used = int(self.random.integers(self.blocks)), 0
        self.stride = coprime_stride(self.blocks, self.random)

    @property
    def weight(self) -> int:
        """Return the blocks left in this pass. A used-up shard counts as one until it is chosen again, as upstream."""
        return max(self.blocks - self.used, 1)

    def take(self, count: int) -> np.ndarray:
        """Return the first tokens of the next `count` windows, int64 `[count]`, starting new passes as needed."""
        parts = []
        while count:
            if self.used == self.blocks:
                self._begin_pass()
            steps = np.arange(self.used, min(self.used + count, self.blocks))
            parts.append(self.phase + (self.start + steps * self.stride) % self.blocks * self.seq_len)
            self.used += steps.size
            count -= steps.size
        return np.concatenate(parts)


def coprime_stride(blocks: int, random: np.random.Generator) -> int:
    """Draw a stride uniformly among 1 … `blocks` − 1 coprime to `blocks`, so that it misses no block."""
    while blocks > 1:
        stride = int(random.integers(1, blocks))
        if math.gcd(stride, blocks) == 1:
            return stride
    return 1


class CoprimeOrder:
    """A `WindowOrder` that draws the windows of one optimizer step at a time. `sizes` are the shards' tokens."""

    def __init__(self, sizes: Sequence[int], *, seq_len: int, micro_batches: int, seed: int):
        self.random = np.random.Generator(np.random.PCG64(seed))
        self.shards = usable_shards(sizes, seq_len)
        self.cursors = [Cursor(sizes[i], seq_len, self.random) for i in self.shards]
        self.micro_batches, self.steps = micro_batches, 0

    def draw(self, count: int) -> np.ndarray:
        """Return the `count` windows of the next step, int64 `[count, 2]`: shard, first token."""
        windows, rounds = [], []
        for i, own in self._windows_per_shard(count):
            first = self.random.permutation(self.cursors[i].take(own))
            windows.append(np.stack([np.full(own, self.shards[i]), first], axis=1))
            rounds.append(np.arange(own))
        self.steps += 1
        # Interleaved: round after round, every shard that has windows left gives one, in random order.
        return np.concatenate(windows)[np.lexsort((self.random.random(count), np.concatenate(rounds)))]

    def _windows_per_shard(self, count: int) -> list[tuple[int, int]]:
        """Choose shards, by index of `cursors`, and how many windows each gives: one, plus its share of the rest."""
        progress = min(self.steps / MIXING_STEPS, 1.0)
        at_first, at_last = WEIGHT_EXPONENT
        # An exponent below 1 draws from shards with few blocks left more often than their blocks alone would.
        weights = np.array([c.weight for c in self.cursors]) ** (at_first + progress * (at_last - at_first))
        shares = weights / weights.sum()
        distinct = self._distinct_shards(count, progress)
        chosen = self.random.choice(len(shares), size=distinct, replace=False, p=shares)
        # Every chosen shard gives a window, or fewer shards would be mixed than `distinct` says.
        counts = 1 + self.random.multinomial(count - distinct, shares[chosen] / shares[chosen].sum())
        return list(zip(chosen.tolist(), counts.tolist(), strict=True))

    def _distinct_shards(self, count: int, progress: float) -> int:
        bounds = max(FEWEST_SHARDS, self.micro_batches), max(MOST_SHARDS, SHARDS_PER_MICRO_BATCH * self.micro_batches)
        # There are no more shards in a step than shards or windows.
        low, high = (min(bound, len(self.cursors), count) for bound in bounds)
        return round(low + progress * (high - low))
