"""Batches made ahead: the same ones in the same order, the loader's errors, and no thread that stays."""

import threading
from contextlib import closing

import pytest
import torch
from torch import Tensor

from golf.errors import GolfError
from golf.settings.config import Config
from golf.training.data.batches import make_loader, open_loader
from golf.training.data.dataset import open_dataset
from golf.training.data.prefetch import Prefetched
from golf.training.ranks import Ranks

CPU = torch.device("cpu")


class Counting:
    """A loader whose k-th batch says k, until it fails."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.made, self.fails_at = 0, fails_at

    def next_batch(self) -> tuple[Tensor, Tensor]:
        if self.made == self.fails_at:
            raise GolfError("shard 7 is foreign")
        self.made += 1
        return torch.tensor([self.made - 1]), torch.tensor([self.made])


def prefetch_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("prefetch")]


@pytest.mark.parametrize("ahead", [1, 4])
def test_same_batches_in_the_same_order(ahead: int) -> None:
    with closing(Prefetched(Counting(), CPU, ahead)) as ours:
        found = [tuple(t.item() for t in ours.next_batch()) for _ in range(50)]
    assert found == [(i, i + 1) for i in range(50)]


def test_no_more_is_made_than_asked_for_and_ahead() -> None:
    loader = Counting()
    with closing(Prefetched(loader, CPU, ahead=3)) as ours:
        for _ in range(10):
            ours.next_batch()
    assert 10 <= loader.made <= 13


def test_an_error_is_raised_where_its_batch_is_due() -> None:
    with closing(Prefetched(Counting(fails_at=6), CPU)) as ours:
        for k in range(6):
            assert ours.next_batch()[0].item() == k
        for _ in range(2):
            with pytest.raises(GolfError, match=r"^shard 7 is foreign$"):
                ours.next_batch()


@pytest.mark.parametrize("error", [KeyboardInterrupt, GolfError])
def test_no_thread_stays_when_the_block_is_left(error: type[BaseException]) -> None:
    with pytest.raises(error), closing(Prefetched(Counting(), CPU)) as ours:
        ours.next_batch()
        assert prefetch_threads()
        raise error
    assert not prefetch_threads()


def test_a_cpu_run_makes_its_batches_itself(tiny_cfg: Config) -> None:
    dataset = open_dataset(tiny_cfg)
    first = make_loader(tiny_cfg, dataset).next_batch()
    with open_loader(tiny_cfg, dataset, Ranks()) as loader:
        assert all(map(torch.equal, loader.next_batch(), first))
        assert not prefetch_threads()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("loader", ["sequential", "coprime", "shuffled"])
def test_a_gpu_run_gets_the_same_batches_from_pinned_memory(tiny_cfg: Config, loader: str) -> None:
    tiny_cfg.data.loader = loader
    dataset = open_dataset(tiny_cfg)
    plain = make_loader(tiny_cfg, dataset)
    with open_loader(tiny_cfg, dataset, Ranks(device=torch.device("cuda", 0))) as ours:
        for _ in range(20):
            for found, expected in zip(ours.next_batch(), plain.next_batch(), strict=True):
                assert found.is_pinned() and torch.equal(found, expected)
    assert not prefetch_threads()
