"""The shuffled order against the published rule: pick a shard by what it has left, then one of its blocks."""

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from golf.training.data.shuffled import ShuffledOrder


@given(
    sizes=st.lists(st.integers(6, 60), min_size=1, max_size=6),
    seq_len=st.integers(1, 5),
    cuts=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    seed=st.integers(0, 2**32),
)
def test_a_pass_is_every_block_once(sizes: list[int], seq_len: int, cuts: list[int], seed: int) -> None:
    order = ShuffledOrder(sizes, seq_len=seq_len, seed=seed)
    drawn: list[tuple[int, int]] = []
    for count in itertools.cycle(cuts):
        drawn += [(shard, first) for shard, first in order.draw(count).tolist()]
        if len(drawn) >= 2 * sum(sizes):  # two passes and more
            break
    for _ in range(2):
        phases: dict[int, int] = {}
        for shard, first in drawn:  # its first window gives away a shard's phase in this pass
            phases.setdefault(shard, first % seq_len)
        assert set(phases) == set(range(len(sizes)))
        blocks = [(i, first) for i, n in enumerate(sizes) for first in range(phases[i], n - seq_len, seq_len)]
        assert sorted(drawn[: len(blocks)]) == blocks
        drawn = drawn[len(blocks) :]


def test_how_draws_are_cut_does_not_matter() -> None:
    at_once, one_by_one = (ShuffledOrder([50, 9, 70], seq_len=4, seed=3) for _ in range(2))
    assert at_once.draw(100).tolist() == [one_by_one.draw(1)[0].tolist() for _ in range(100)]


def published_probability(windows: tuple[tuple[int, int], ...], blocks: list[int]) -> Fraction:
    """Of drawing `windows` when a shard is picked in proportion to its blocks left, and then one of these."""
    left, probability = list(blocks), Fraction(1)
    for shard, _ in windows:
        probability *= Fraction(left[shard], sum(left)) * Fraction(1, left[shard])
        left[shard] -= 1
    return probability


def test_orders_are_as_likely_as_by_the_published_rule() -> None:
    """Two blocks in one shard, one in another: 6 orders, over 3,000 seeds."""
    seeds = 3000
    drawn = Counter(
        tuple(map(tuple, ShuffledOrder([3, 2], seq_len=1, seed=seed).draw(3).tolist())) for seed in range(seeds)
    )
    assert len(drawn) == 6
    for windows, count in drawn.items():
        expected = float(published_probability(windows, [2, 1]))
        assert abs(count / seeds - expected) < 4 * np.sqrt(expected * (1 - expected) / seeds)
