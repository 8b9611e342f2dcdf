"""The coprime-stride order against a slow walk along the blocks and against the rules of mixing, spelt out."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golf.training.data.coprime import MIXING_STEPS, CoprimeOrder, Cursor, coprime_stride


def order(sizes: list[int], micro_batches: int = 8, seed: int = 1, seq_len: int = 4) -> CoprimeOrder:
    return CoprimeOrder(sizes, seq_len=seq_len, micro_batches=micro_batches, seed=seed)


@given(tokens=st.integers(6, 300), seq_len=st.integers(1, 5), seed=st.integers(0, 2**32), data=st.data())
def test_cursor_equals_striding_block_by_block(tokens: int, seq_len: int, seed: int, data: st.DataObject) -> None:
    """Every block once a pass, however the pass is cut into takes, and a new grid after it."""
    cursor = Cursor(tokens, seq_len, np.random.default_rng(seed))
    for _ in range(2):
        phase, blocks, block, taken = cursor.phase, cursor.blocks, cursor.start, 0
        seen = set()
        while taken < blocks:
            assert cursor.weight == blocks - taken
            part = cursor.take(data.draw(st.integers(1, blocks - taken)))
            for position in part.tolist():
                assert position == phase + block * seq_len
                seen.add(block)
                block = (block + cursor.stride) % blocks
            taken += len(part)
        assert seen == set(range(blocks)) and cursor.weight == 1
        cursor._begin_pass()


@given(tokens=st.integers(6, 60), seq_len=st.integers(1, 5), seed=st.integers(0, 2**32))
def test_cursor_goes_on_into_new_passes(tokens: int, seq_len: int, seed: int) -> None:
    at_once, one_by_one = (Cursor(tokens, seq_len, np.random.default_rng(seed)) for _ in range(2))
    assert at_once.take(150).tolist() == [int(one_by_one.take(1)[0]) for _ in range(150)]


@pytest.mark.parametrize("blocks", [*range(1, 40), 97_656])
def test_strides_share_no_factor_with_the_blocks(blocks: int) -> None:
    random = np.random.default_rng(blocks)
    found = {coprime_stride(blocks, random) for _ in range(400)}
    common = [d for d in range(2, blocks + 1) if blocks % d == 0]
    coprime = {s for s in range(1, max(blocks, 2)) if not any(s % d == 0 for d in common)}
    assert found == coprime if blocks < 40 else found <= coprime


@pytest.mark.parametrize(
    ("shards", "micro_batches", "windows", "first", "last"),
    [
        (80, 8, 512, 8, 64),  # the record: 8 ranks, min and max of its 80 shards
        (80, 1, 512, 8, 32),
        (80, 16, 512, 16, 80),
        (5, 8, 512, 5, 5),
        (80, 8, 3, 3, 3),
        (20, 8, 16, 8, 16),
    ],
)
def test_distinct_shards_of_a_step(shards: int, micro_batches: int, windows: int, first: int, last: int) -> None:
    ours = order([1000] * shards, micro_batches)
    for steps, expected in ((0, first), (MIXING_STEPS // 2, round((first + last) / 2)), (9 * MIXING_STEPS, last)):
        ours.steps = steps
        drawn = ours.draw(windows)
        assert len(drawn) == windows and len(set(drawn[:, 0].tolist())) == expected


def test_the_mixture_broadens_with_every_step() -> None:
    ours = order([1000] * 40, micro_batches=1)
    found = [len(set(ours.draw(32)[:, 0].tolist())) for _ in range(MIXING_STEPS + 10)]
    assert found[0] == 8 and found[MIXING_STEPS // 2] == 20 and set(found[MIXING_STEPS:]) == {32}
    assert found == sorted(found)


@given(seed=st.integers(0, 2**32), sizes=st.lists(st.integers(5, 300), min_size=1, max_size=12))
def test_shards_take_turns(seed: int, sizes: list[int]) -> None:
    """Round after round, every shard that has windows left gives one."""
    drawn = order(sizes, seed=seed).draw(60)[:, 0].tolist()
    left = Counter(drawn)
    while left:
        turn, drawn = drawn[: len(left)], drawn[len(left) :]
        assert set(turn) == set(left)
        left -= Counter(turn)


@pytest.mark.parametrize(("steps", "exponent"), [(0, 0.9), (MIXING_STEPS // 2, 0.7), (MIXING_STEPS, 0.5)])
def test_shards_are_chosen_by_a_power_of_what_they_have_left(steps: int, exponent: float) -> None:
    ours, draws = order([1, 41, 161, 641], seq_len=1), 4000  # 0, 40, 160 and 640 blocks
    ours.steps = steps
    chosen = Counter(ours._windows_per_shard(1)[0][0] for _ in range(draws))
    weights = np.array([40.0, 160.0, 640.0]) ** exponent
    expected = weights / weights.sum()
    deviation = np.sqrt(expected * (1 - expected) / draws)
    found = np.array([chosen[i] for i in range(3)]) / draws
    assert np.all(np.abs(found - expected) < 4 * deviation)


def test_extra_windows_follow_the_same_weights() -> None:
    ours = order([41, 641], seq_len=1)
    extra = sum(dict(ours._windows_per_shard(102))[1] - 1 for _ in range(200)) / (200 * 100)
    share = 640**0.9 / (640**0.9 + 40**0.9)
    assert abs(extra - share) < 4 * np.sqrt(share * (1 - share) / 20_000)


def test_no_block_repeats_before_its_shard_is_through() -> None:
    ours = order([401, 801, 1201])
    passes: dict[int, list[int]] = {0: [], 1: [], 2: []}
    blocks = {i: cursor.blocks for i, cursor in enumerate(ours.cursors)}
    for _ in range(20):
        for shard, first in ours.draw(10).tolist():
            passes[shard].append(first)
    for shard, positions in passes.items():
        whole = positions[: blocks[shard] // 10 * 10]
        assert len(whole) > 20 and len(set(whole)) == len(whole)


def test_windows_of_a_shard_are_shuffled_within_a_step() -> None:
    ours = order([4001])
    cursor = ours.cursors[0]
    strided = [cursor.phase + (cursor.start + j * cursor.stride) % cursor.blocks * 4 for j in range(50)]
    drawn = ours.draw(50)[:, 1].tolist()
    assert sorted(drawn) == sorted(strided) and drawn != strided
