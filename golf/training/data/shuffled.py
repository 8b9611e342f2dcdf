"""The shuffled order: every block of every shard once, in random order, then a new pass with other blocks.

After openai/parameter-golf record 2026-04-05_SP8192…, which permutes the blocks of each shard and picks, sequence by
sequence, a shard with probability proportional to the blocks it has left. The result is distributed as one uniformly
random order of all blocks, which is drawn here. Two differences: the seed is a setting instead of the rank, and the
ranks share one stream of all shards, where upstream gives rank r the files r::W, so that a step sees the same windows
whatever the ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from golf.training.data.windows import draw_phase, usable_shards


class ShuffledOrder:
    """A `WindowOrder` that repeats no block until all are used up. `sizes` are the shards' tokens."""

    def __init__(self, sizes: Sequence[int], *, seq_len: int, seed: int):
        self.random = np.random.Generator(np.random.PCG64(seed))
        self.sizes, self.seq_len = sizes, seq_len
        self.shards = np.array(usable_shards(sizes, seq_len))
        self._begin_pass()

    def _begin_pass(self) -> None:
        grids = [draw_phase(self.sizes[i], self.seq_len, self.random) for i in self.shards]
        self.phases = np.array([phase for phase, _ in grids])
        self.ends = np.cumsum([blocks for _, blocks in grids])  # numbers blocks through, shard after shard
        self.blocks = self.arranged()
        self.used = 0

    def arranged(self) -> np.ndarray:
        """Return the numbers of the blocks of the next pass in order, uint32 `[n]`."""
        # 32 bits: all of FineWeb's blocks take 31 MB per rank, and half the time to shuffle.
        return self.random.permutation(np.arange(self.ends[-1], dtype=np.uint32))

    def draw(self, count: int) -> np.ndarray:
        """Return the next `count` windows, int64 `[count, 2]`: shard, first token."""
        parts = []
        while count:
            if self.used == self.blocks.size:
                self._begin_pass()
            parts.append(self._windows(self.blocks[self.used : self.used + count].astype(np.int64)))
            self.used += len(parts[-1])
            count -= len(parts[-1])
        return np.concatenate(parts)

    def _windows(self, blocks: np.ndarray) -> np.ndarray:
        """Return the windows of numbered blocks `[n]`."""
        place = np.searchsorted(self.ends, blocks, side="right")
        within = blocks - np.concatenate([[0], self.ends])[place]
        return np.stack([self.shards[place], self.phases[place] + within * self.seq_len], axis=1)
