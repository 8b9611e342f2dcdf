"""Windows as numbers: each target once, with the context that was promised."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golf.training.ranks import Ranks
from golf.training.scoring.windows import batches, list_windows, split_first

shapes = st.integers(1, 40).flatmap(lambda t: st.tuples(st.integers(1, 200), st.just(t), st.integers(1, t)))


@given(shapes)
def test_every_target_is_in_one_window_with_its_context(shape: tuple[int, int, int]) -> None:
    targets, seq_len, stride = shape
    windows = list_windows(targets, seq_len, stride)
    scored = np.concatenate([np.arange(first, end) for _, first, end in windows])
    assert scored.tolist() == list(range(targets))
    start, first, end = windows[1:].T
    assert (end - start <= seq_len).all() and (end - first >= 1).all() and (end - first <= stride).all()
    assert (first - start == seq_len - stride).all()


@given(shapes, st.integers(1, 9), st.integers(1, 4))
def test_batches_of_all_ranks_hold_every_target_once(shape: tuple[int, int, int], rows: int, world_size: int) -> None:
    targets, seq_len, stride = shape
    tokens = np.arange(targets + 1, dtype=np.uint16)
    windows = split_first(list_windows(targets, seq_len, stride), stride)
    found = []
    for rank in range(world_size):
        own = windows[slice(*Ranks(rank, world_size).share(len(windows)))]
        for batch in batches(tokens, own, seq_len=seq_len, width=stride, batch_seqs=rows):
            assert batch.ids.shape == (rows, seq_len) and batch.targets.shape == (rows, stride)
            found.append(batch.indices[batch.scored])
            read = np.take_along_axis(batch.ids, batch.positions, axis=1)
            assert (read[batch.scored] == batch.indices[batch.scored]).all()  # token i predicts target i …
            assert (batch.targets[batch.scored] == batch.indices[batch.scored] + 1).all()  # … which is token i + 1
    assert np.concatenate(found).tolist() == list(range(targets))


def scored_targets(windows: np.ndarray) -> int:
    return int((windows[:, 2] - windows[:, 1]).sum())


def test_public_split_is_counted_as_published() -> None:
    """The challenge's validation split at T = 2048, stride 64."""
    targets = 62_021_632
    windows = list_windows(targets, 2048, 64)
    # The public scripts had 31 windows more, which scored 1,984 targets again.
    assert scored_targets(windows) == targets and len(windows) == 969_088 - 31


@pytest.mark.parametrize(("targets", "expected"), [(3, [[0, 0, 3]]), (8, [[0, 0, 8]]), (9, [[0, 0, 8], [4, 8, 9]])])
def test_short_splits(targets: int, expected: list[list[int]]) -> None:
    assert list_windows(targets, 8, 4).tolist() == expected
