"""The sequential loader against the public numbers and against a list that is simply walked along."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from golf.errors import GolfError
from golf.training.data.loader import SequentialLoader
from golf.training.data.shards import find_shards, open_shard
from golf.training.ranks import Ranks
from tests.support import PARITY, parity


def loader(shards: list[np.ndarray], **changes: Any) -> SequentialLoader:
    settings: dict[str, Any] = {"local_tokens": 8, "seq_len": 4, "vocab_size": 1000, **changes}
    return SequentialLoader(shards, **settings)


def test_parity_with_the_public_loader() -> None:
    arrays, config = parity("loader_and_bpb_luts")
    shards = [open_shard(p) for p in find_shards(PARITY / "tiny_dataset", "fineweb_train_*.bin", "train")]
    ours = SequentialLoader(
        shards,
        local_tokens=config["global_tokens"] // config["world_size"] // config["grad_accum_steps"],
        seq_len=config["seq_len"],
        vocab_size=400,
        ranks=Ranks(config["rank"], config["world_size"]),
    )
    for call in range(max(config["calls_kept"]) + 1):
        inputs, targets = ours.next_batch()
        if call in config["calls_kept"]:
            assert torch.equal(inputs, torch.from_numpy(arrays[f"x/{call}"]))
            assert torch.equal(targets, torch.from_numpy(arrays[f"y/{call}"]))


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    world_size=st.integers(1, 3),
    sequences=st.integers(1, 3),
    seq_len=st.integers(1, 6),
)
def test_equals_walking_along_the_tokens(sizes: list[int], world_size: int, sequences: int, seq_len: int) -> None:
    stream = np.arange(sum(sizes), dtype=np.uint16)
    shards = np.split(stream, np.cumsum(sizes)[:-1])
    local = sequences * seq_len
    ranks = [
        loader(list(shards), local_tokens=local, seq_len=seq_len, ranks=Ranks(r, world_size)) for r in range(world_size)
    ]
    position = 0
    for _ in range(5):
        for rank in ranks:
            span = [int(stream[(position + i) % stream.size]) for i in range(local + 1)]
            inputs, targets = rank.next_batch()
            assert inputs.flatten().tolist() == span[:-1] and targets.flatten().tolist() == span[1:]
            position += local + 1


def test_a_step_takes_the_same_tokens_whatever_the_ranks() -> None:
    shards = [np.arange(1000, dtype=np.uint16)]
    alone = loader(shards)
    pair = [loader(shards, ranks=Ranks(r, 2)) for r in (0, 1)]
    one = [alone.next_batch() for _ in range(4)]
    two = [batch for _ in range(2) for rank in pair for batch in [rank.next_batch()]]
    assert all(torch.equal(a, b) for x, y in zip(one, two, strict=True) for a, b in zip(x, y, strict=True))


@pytest.mark.parametrize(("world_size", "accumulation"), [(8, 1), (1, 8), (2, 4)])
def test_tokens_consumed_by_a_record_step(world_size: int, accumulation: int) -> None:
    shards = [np.zeros(1_000_000, dtype=np.uint16)]
    ours = loader(shards, local_tokens=524_288 // 8, seq_len=1024, ranks=Ranks(0, world_size))
    for _ in range(accumulation):
        ours.next_batch()
    assert ours.position == 524_296


def test_tokens_beyond_the_vocabulary_are_an_error() -> None:
    with pytest.raises(GolfError, match="hold token 1000, but the vocabulary ends at 999"):
        loader([np.full(50, 1000, dtype=np.uint16)]).next_batch()


def test_empty_shards_are_an_error() -> None:
    with pytest.raises(GolfError, match="no tokens"):
        loader([np.zeros(0, dtype=np.uint16)])
