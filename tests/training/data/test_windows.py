"""What every order of windows has to keep: windows inside their shards, seeds, and steps that ranks only share out."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from golf.errors import GolfError
from golf.training.data.coprime import CoprimeOrder
from golf.training.data.shuffled import ShuffledOrder
from golf.training.data.windows import WindowLoader, WindowOrder, draw_phase
from golf.training.ranks import Ranks

ORDERS: dict[str, Callable[[list[int], int, int], WindowOrder]] = {
    "coprime": lambda sizes, seq_len, seed: CoprimeOrder(sizes, seq_len=seq_len, micro_batches=8, seed=seed),
    "shuffled": lambda sizes, seq_len, seed: ShuffledOrder(sizes, seq_len=seq_len, seed=seed),
}
every_order = pytest.mark.parametrize("name", ORDERS)


def loader(name: str, shards: list[np.ndarray], seed: int = 1, **settings: Any) -> WindowLoader:
    settings = {"micro_batches": 8, "local_tokens": 12, "seq_len": 4, "vocab_size": 65_536, **settings}
    return WindowLoader(shards, ORDERS[name]([s.size for s in shards], settings["seq_len"], seed), **settings)


def numbered_shards(*sizes: int) -> list[np.ndarray]:
    """Shards in which a token is its own place among all tokens."""
    stream = np.arange(sum(sizes), dtype=np.uint16)
    return np.split(stream, np.cumsum(sizes)[:-1])


@every_order
@given(
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=12).filter(lambda sizes: max(sizes) > 8),
    seq_len=st.integers(1, 8),
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    seed=st.integers(0, 2**32),
)
def test_windows_lie_inside_their_shards(
    name: str, sizes: list[int], seq_len: int, counts: list[int], seed: int
) -> None:
    order = ORDERS[name](sizes, seq_len, seed)
    for count in counts:
        windows = order.draw(count)
        assert windows.shape == (count, 2)
        for shard, first in windows.tolist():
            assert first >= 0 and first + seq_len + 1 <= sizes[shard]


@given(tokens=st.integers(2, 200), seq_len=st.integers(1, 100), seed=st.integers(0, 2**32))
def test_a_grid_leaves_out_less_than_a_block_at_either_end(tokens: int, seq_len: int, seed: int) -> None:
    seq_len = min(seq_len, tokens - 1)
    phase, blocks = draw_phase(tokens, seq_len, np.random.default_rng(seed))
    assert 0 <= phase < seq_len and blocks >= 1
    assert 0 <= tokens - (phase + blocks * seq_len + 1) < seq_len


def test_every_phase_occurs() -> None:
    random = np.random.default_rng(0)
    assert {draw_phase(100, 4, random)[0] for _ in range(200)} == {0, 1, 2, 3}
    assert {draw_phase(7, 4, random)[0] for _ in range(200)} == {0, 1, 2}
    assert {draw_phase(5, 4, random) for _ in range(20)} == {(0, 1)}


@every_order
@given(seed=st.integers(0, 2**32))
def test_the_seed_alone_decides(name: str, seed: int) -> None:
    first, again, other = (ORDERS[name]([500, 700, 300], 4, s) for s in (seed, seed, seed + 1))
    for _ in range(3):
        windows = first.draw(50)
        assert np.array_equal(windows, again.draw(50)) and not np.array_equal(windows, other.draw(50))


@every_order
def test_a_batch_is_its_windows_and_the_targets_come_one_later(name: str) -> None:
    shards = numbered_shards(300, 500, 400)
    ours, order = loader(name, shards, micro_batches=1), ORDERS[name]([300, 500, 400], 4, 1)
    for _ in range(5):
        inputs, targets = ours.next_batch()
        expected = [shards[s][first : first + 5].tolist() for s, first in order.draw(3)]
        assert [[*x, y[-1]] for x, y in zip(inputs.tolist(), targets.tolist(), strict=True)] == expected
        assert torch.equal(targets, inputs + 1)
        assert inputs.dtype == targets.dtype == torch.int64 and inputs.is_contiguous() and targets.is_contiguous()


@every_order
@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_ranks_share_out_the_list_of_a_step(name: str, world_size: int) -> None:
    """As upstream with 8 ranks: rank r trains on windows r::8. With fewer, they are the same eight micro-batches."""
    shards = numbered_shards(300, 500, 400, 50)
    order = ORDERS[name]([s.size for s in shards], 4, 1)
    ranks = [loader(name, shards, ranks=Ranks(r, world_size)) for r in range(world_size)]
    for _ in range(3):
        windows = order.draw(8 * 3)
        found = [rank.next_batch()[0] for _ in range(8 // world_size) for rank in ranks]
        for micro, inputs in enumerate(found):
            assert inputs.tolist() == [shards[s][first : first + 4].tolist() for s, first in windows[micro::8]]


@every_order
def test_shards_shorter_than_a_window_are_passed_over(name: str) -> None:
    windows = ORDERS[name]([4, 0, 5, 1, 30], 4, 1).draw(200)
    assert set(windows[:, 0].tolist()) == {2, 4}


@every_order
def test_shards_that_are_all_too_short_are_an_error(name: str) -> None:
    with pytest.raises(GolfError, match=r"None of the 3 training shards holds a sequence of 4 tokens"):
        ORDERS[name]([4, 0, 3], 4, 1)


@every_order
def test_tokens_beyond_the_vocabulary_are_an_error(name: str) -> None:
    with pytest.raises(GolfError, match="hold token 1000, but the vocabulary ends at 999"):
        loader(name, [np.full(50, 1000, dtype=np.uint16)], vocab_size=1000).next_batch()
