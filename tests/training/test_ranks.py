"""What ranks exchange, and which groups are refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from golf.errors import GolfError
from golf.training.loop.proving import unequal_weights
from golf.training.ranks import Ranks, join_ranks
from tests.support import ROOT, on_ranks


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


def start_of(rank: int, world_size: int, seeds: list[int]) -> str:
    model = torch.nn.ModuleDict({"same": torch.nn.Linear(3, 2), "drawn": torch.nn.Linear(3, 2).bfloat16()})
    for name, seed in zip(model, (0, seeds[rank]), strict=True):
        for param in model[name].parameters():
            torch.nn.init.normal_(param, generator=torch.Generator().manual_seed(seed))
    model.register_parameter("empty", torch.nn.Parameter(torch.zeros(0, 3)))
    return unequal_weights(model, Ranks(rank, world_size))


def test_weights_that_ranks_have_drawn_apart_are_named(tmp_path: Path) -> None:
    first, second = on_ranks(2, tmp_path, start_of, [1, 2])
    assert first.startswith("2 of 5 weights differ between ranks, such as drawn.") and second == first
    (tmp_path / "equal").mkdir()
    assert on_ranks(2, tmp_path / "equal", start_of, [7, 7]) == ["", ""]


@pytest.mark.parametrize(("started", "expected"), [(2, 1), (2, 8), (None, 2)])
def test_a_group_that_is_not_the_configurations_is_refused(
    started: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if started:
        monkeypatch.setenv("WORLD_SIZE", str(started))
        monkeypatch.setenv("RANK", "0")
    with pytest.raises(GolfError, match=f"for {expected} ranks, but WORLD_SIZE={started or 1}"):
        join_ranks("cpu", expected)


def test_one_rank_ignores_what_a_cloud_has_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is alone needs neither a group nor the address that one is joined by."""
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    assert join_ranks("cpu", 1) == Ranks() and not torch.distributed.is_initialized()


def test_a_rank_of_torchrun_ends_without_taking_down_the_interpreter() -> None:
    # What the interpreter runs at its end would run while Gloo's threads may still ask for its lock.
    program = (
        "import atexit, sys\n"
        "from golf.training.ranks import end_rank\n"
        "atexit.register(print, 'taken down')\n"
        "print('last line')\n"
        "end_rank(3)\n"
    )

    def ended(**environment: str) -> tuple[int, str]:
        known = {name: value for name, value in os.environ.items() if name != "WORLD_SIZE"}
        done = subprocess.run(
            [sys.executable, "-c", program], env=known | environment, cwd=ROOT, capture_output=True, text=True
        )
        return done.returncode, done.stdout

    assert ended(WORLD_SIZE="2") == (3, "last line\n")
    assert ended() == (0, "last line\ntaken down\n")
