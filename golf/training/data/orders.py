"""Orders that a technique gives to the training text: windows of all shards, or documents of one shard after another.

The loaders `shuffled` and `packed_shuffled` draw their units in random order. Here a technique's `data_order` does.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from golf.errors import GolfError
from golf.registry import CHANGES_ORDER
from golf.settings.config import Config, techniques
from golf.training.data.packed import ShuffledRows
from golf.training.data.shuffled import ShuffledOrder
from golf.training.ranks import Ranks


@dataclass(frozen=True)
class Units:
    """Windows or documents that a pass over the training text puts in order."""

    number: int  # of the pass, from 0
    seed: tuple[int, ...]  # data.loader_seed; with documents the number of their shard, too
    lengths: np.ndarray  # [n] tokens of each unit
    read: Callable[[int], np.ndarray]  # tokens of a unit by its place, uint16; a window has the last target, too

    def shuffled(self) -> np.ndarray:
        """Return places in random order, int64 `[n]`, another one in every pass."""
        return np.random.default_rng([*self.seed, self.number]).permutation(self.lengths.size)


DataOrder = Callable[[Units], np.ndarray]


def data_order(cfg: Config) -> DataOrder:
    """Return the order of the technique that declares `CHANGES_ORDER`, of which a run has one."""
    (technique,) = (technique for technique in techniques(cfg) if technique.effect == CHANGES_ORDER)
    return technique.data_order(cfg)


class OrderedWindows(ShuffledOrder):
    """A `WindowOrder` by `order`; ties and phases follow `seed`."""

    def __init__(self, shards: Sequence[np.ndarray], *, seq_len: int, seed: int, order: DataOrder):
        self.tokens, self.seed, self.order, self.passes = shards, seed, order, 0
        super().__init__([shard.size for shard in shards], seq_len=seq_len, seed=seed)

    def arranged(self) -> np.ndarray:
        """Return the places of the blocks of the next pass in order, uint32 `[n]`."""

        def read(place: int) -> np.ndarray:
            ((shard, first),) = self._windows(np.array([place]))
            return self.tokens[shard][first : first + self.seq_len + 1]

        units = Units(self.passes, (self.seed,), np.full(self.ends[-1], self.seq_len), read)
        self.passes += 1
        return _permutation(self.order, units).astype(np.uint32)


class OrderedRows(ShuffledRows):
    """Rows of whole documents, those of a shard by `order`. The order of the shards is random."""

    def __init__(self, shards: Sequence[np.ndarray], local_tokens: int, seed: int, order: DataOrder):
        super().__init__(shards, local_tokens, seed)
        self.order = order

    def arranged(self, number: int, shard: int, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return the places of a shard's documents in pass `number` in order, int64 `[n]`."""

        def read(place: int) -> np.ndarray:
            return self.shards[shard][starts[place] : starts[place] + sizes[place]]

        return _permutation(self.order, Units(number, (self.seed, shard), sizes, read))


def refuse_other_orders(made: OrderedWindows | OrderedRows, ranks: Ranks) -> None:
    """Raise `GolfError` unless the text begins alike on all ranks. Each computes the order, and machines differ."""
    digest = zlib.crc32((made.blocks if isinstance(made, OrderedWindows) else made.read(0)).tobytes())
    if ranks.sum(digest)[0] != digest * ranks.world_size:
        raise GolfError("The ranks put the training text in different orders: let data_order depend on no machine.")


def _permutation(order: DataOrder, units: Units) -> np.ndarray:
    """Return the places by `order`. Raises `GolfError` unless each is there once."""
    places, count = np.asarray(order(units)), units.lengths.size
    if places.ndim != 1 or not np.array_equal(np.sort(places), np.arange(count)):
        raise GolfError(f"data_order returned {list(places.shape)} places for {count} units: return each from 0 once.")
    return places
