"""The training batches of a run: the loader that `data.loader` names, and a thread that keeps it ahead of a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from golf.settings.config import Config, changes_order, is_packed, micro_batch_tokens
from golf.training.data.coprime import CoprimeOrder
from golf.training.data.dataset import Dataset
from golf.training.data.loader import Loader, SequentialLoader, listed_first
from golf.training.data.orders import OrderedRows, OrderedWindows, data_order, refuse_other_orders
from golf.training.data.packed import PackedLoader, Rows, SequentialRows, ShuffledRows
from golf.training.data.prefetch import Prefetched
from golf.training.data.shuffled import ShuffledOrder
from golf.training.data.windows import WindowLoader, WindowOrder
from golf.training.ranks import ALONE, Ranks


@contextlib.contextmanager
def open_loader(cfg: Config, dataset: Dataset, ranks: Ranks, *, after: int = 0) -> Iterator[Loader]:
    """Open this rank's loader after skipping `after` batches, and make its batches ahead of a GPU."""
    loader = make_loader(cfg, dataset, ranks)
    loader.skip(after)
    with made_ahead(loader, ranks) as batches:
        yield batches


@contextlib.contextmanager
def made_ahead(loader: Loader, ranks: Ranks) -> Iterator[Loader]:
    """Make the batches of `loader` ahead of a GPU, in a thread that stops when the block exits."""
    # On a CPU a thread would compete with the training for the same cores.
    if ranks.device.type != "cuda":
        yield loader
    else:
        with contextlib.closing(Prefetched(loader, ranks.device)) as prefetched:
            yield prefetched


def make_loader(cfg: Config, dataset: Dataset, ranks: Ranks = ALONE) -> SequentialLoader | WindowLoader | PackedLoader:
    """Build the loader of `cfg`. Raises `GolfError` for shards that it cannot read."""
    data = cfg.data
    # Micro-batches and not ranks divide a step, so that it has the same tokens on any number of GPUs.
    local_tokens = micro_batch_tokens(cfg)
    if is_packed(cfg):
        rows: Rows
        if data.loader != "packed_shuffled":
            rows = SequentialRows(dataset.train, local_tokens)
        elif changes_order(cfg):
            rows = OrderedRows(dataset.train, local_tokens, data.loader_seed, data_order(cfg))
            refuse_other_orders(rows, ranks)
        else:
            rows = ShuffledRows(dataset.train, local_tokens, data.loader_seed)
        # Only flash attention takes a list of pieces, whose length is fixed.
        is_limited = cfg.model.attention not in ("sdpa", "cudnn")
        return PackedLoader(rows, vocab_size=data.vocab_size, ranks=ranks, is_limited=is_limited)
    if data.loader == "sequential":
        shards = listed_first(dataset.train, data.shard_order) if data.shard_order else dataset.train
        return SequentialLoader(
            shards, local_tokens=local_tokens, seq_len=data.train_seq_len, vocab_size=data.vocab_size, ranks=ranks
        )
    return WindowLoader(
        dataset.train,
        _order(cfg, dataset, ranks),
        micro_batches=data.micro_batches,
        local_tokens=local_tokens,
        seq_len=data.train_seq_len,
        vocab_size=data.vocab_size,
        ranks=ranks,
    )


def _order(cfg: Config, dataset: Dataset, ranks: Ranks) -> WindowOrder:
    data, sizes = cfg.data, [shard.size for shard in dataset.train]
    if data.loader == "coprime":
        return CoprimeOrder(sizes, seq_len=data.train_seq_len, micro_batches=data.micro_batches, seed=data.loader_seed)
    assert data.loader == "shuffled", data.loader
    if changes_order(cfg):
        order = OrderedWindows(dataset.train, seq_len=data.train_seq_len, seed=data.loader_seed, order=data_order(cfg))
        refuse_other_orders(order, ranks)
        return order
    return ShuffledOrder(sizes, seq_len=data.train_seq_len, seed=data.loader_seed)
