"""What the tests of scoring share: a model that is small but not at its start, a text, ranks that are threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pytest
import torch
from torch import Tensor

from golf.bits import Score
from golf.settings.config import ModelConfig
from golf.training.data.byte_tables import ByteTables
from golf.training.model.gpt import GPT
from golf.training.ranks import Ranks
from golf.training.scoring.tally import Observe, Tally

VOCAB, SEQ_LEN = 12, 16
TABLES = ByteTables(
    base_bytes=np.arange(VOCAB, dtype=np.int16), leading_space=np.arange(VOCAB) % 2 == 0, boundary=np.arange(VOCAB) < 3
)


def small_model(seed: int = 0, layers: int = 3) -> GPT:
    """Float32, with weights at which every part of the model matters."""
    torch.manual_seed(seed)
    cfg = ModelConfig(
        vocab_size=VOCAB, num_layers=layers, model_dim=16, num_heads=2, num_kv_heads=1, compute_dtype="fp32"
    )
    model = GPT(cfg).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return model


def small_tokens(targets: int, seed: int = 0) -> np.ndarray:
    """Tokens `[targets + 1]`, BOS first and about every fifteenth."""
    generator = np.random.default_rng(seed)
    tokens = generator.integers(2, VOCAB, targets + 1).astype(np.uint16)
    tokens[generator.random(tokens.size) < 1 / 15] = 1
    tokens[0] = 1
    return tokens


def small_tally(tokens: np.ndarray, ranks: Ranks | None = None, observe: Observe | None = None) -> Tally:
    """A tally over `tokens` `[N + 1]` with the byte tables of the tests, on one rank if none is given."""
    return Tally(tokens, TABLES.of(tokens[:-1], tokens[1:]), ranks or Ranks(), observe)


@dataclass
class Observed:
    """An observer that keeps what it is told, call by call."""

    indices: list[np.ndarray] = field(default_factory=list)
    nats: list[np.ndarray] = field(default_factory=list)

    def __call__(self, indices: np.ndarray, nats: np.ndarray) -> None:
        self.indices.append(indices)
        self.nats.append(nats)

    def per_target(self, targets: int) -> np.ndarray:
        """Nats `[targets]`; fails unless each target was scored exactly once."""
        order = np.concatenate(self.indices)
        assert sorted(order) == list(range(targets))
        found = np.empty(targets)
        found[order] = np.concatenate(self.nats)
        return found


@dataclass
class Meeting:
    """Where ranks that are threads of this process exchange what they add up."""

    barrier: threading.Barrier
    brought: dict[int, list[Tensor]] = field(default_factory=dict)


@dataclass(frozen=True)
class ThreadRanks(Ranks):
    meeting: Meeting = field(default_factory=lambda: Meeting(threading.Barrier(1)))

    def sum(self, *values: float) -> list[float]:
        tensor = torch.tensor(values, dtype=torch.float64)
        self.sum_tensors([tensor])
        return tensor.tolist()

    def sum_tensors(self, tensors: Sequence[Tensor]) -> None:
        self.meeting.brought[self.rank] = [t.clone() for t in tensors]
        self.meeting.barrier.wait(timeout=900)
        for i, tensor in enumerate(tensors):
            tensor.copy_(torch.stack([self.meeting.brought[r][i] for r in range(self.world_size)]).sum(0))
        self.meeting.barrier.wait(timeout=900)


T = TypeVar("T")


def on_ranks(world_size: int, work: Callable[[Ranks], T]) -> list[T]:
    """What `work` returns on each of `world_size` ranks; a rank that waits for another in vain fails."""
    meeting, results = Meeting(threading.Barrier(world_size)), {}

    def run(rank: int) -> None:
        try:
            results[rank] = work(ThreadRanks(rank, world_size, meeting=meeting))
        except BaseException:
            meeting.barrier.abort()
            raise

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if "torch._dynamo" in sys.modules:
        # Threads share the compiler's stance. The last one to leave a stance restores what another had set.
        torch.compiler.set_stance("default")
    return [results[rank] for rank in range(world_size)]


def assert_ranks_change_nothing(score: Callable[[GPT, Ranks], Score], tolerance: float) -> None:
    """Fail unless two and three ranks, each with its own small model, score as one does."""
    alone = score(small_model(), Ranks())

    def work(ranks: Ranks) -> Score:
        return score(models[ranks.rank], ranks)

    for world_size in (2, 3):
        # Made before the threads, which share one random generator.
        models = [small_model() for _ in range(world_size)]
        for found in on_ranks(world_size, work):
            assert found.val_loss == pytest.approx(alone.val_loss, rel=tolerance)
            assert (found.tokens, found.bytes) == (alone.tokens, alone.bytes)
