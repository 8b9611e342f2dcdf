"""What ranks exchange, and which groups are refused."""

from pathlib import Path

import pytest
import torch

from golf.errors import GolfError
from golf.training.ranks import Ranks, join_ranks
from tests.support import on_ranks


def exchanged(rank: int, world_size: int) -> tuple[list[torch.Tensor], list[str]]:
    ranks = Ranks(rank, world_size)
    tensors = [torch.full((2, 3), rank + 1.0), torch.tensor(10 * rank), torch.full((4,), rank + 0.5).double()]
    tensors.append(torch.ones(3, 2).mT * (rank + 1))  # not contiguous
    ranks.sum_tensors(tensors)
    return tensors, ranks.gather([f"from {rank}"] * rank)


def test_tensors_of_several_dtypes_and_sentences(tmp_path: Path) -> None:
    for tensors, sentences in on_ranks(2, tmp_path, exchanged):
        matrix, count, doubles, turned = tensors
        assert (matrix == 3).all() and matrix.shape == (2, 3) and count == 10
        assert (
            (doubles == 2).all() and doubles.dtype == torch.float64 and (turned == 3).all() and turned.shape == (2, 3)
        )
        assert sentences == ["from 1"]
    assert Ranks().gather(["alone"]) == ["alone"]


@pytest.mark.parametrize(("started", "expected"), [(2, 1), (2, 8), (None, 2)])
def test_a_group_that_is_not_the_configurations_is_refused(
    started: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if started:
        monkeypatch.setenv("WORLD_SIZE", str(started))
        monkeypatch.setenv("RANK", "0")
    with pytest.raises(GolfError, match=f"for {expected} ranks, but WORLD_SIZE={started or 1}"):
        join_ranks("cpu", expected)
