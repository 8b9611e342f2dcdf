"""Steps and warm-up: gradients add up, clipping acts, and the warm-up leaves no trace."""

from pathlib import Path

import pytest
import torch

from golf.lab.corpora.own_text import OwnDataset
from golf.settings.config import Config
from golf.training.loop.proving import proving_warm_up
from golf.training.loop.state import TrainState
from golf.training.loop.steps import TrainStep
from golf.training.loop.switches import StepHooks, Switches
from golf.training.loop.warmup import synthetic_batch
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from golf.training.optim.groups import build_optimizer
from golf.training.ranks import Ranks
from tests.support import compose, on_ranks, tiny_overrides


def stepper(cfg: Config) -> TrainStep:
    model = build_model(cfg)
    return TrainStep(cfg, model, build_optimizer(cfg, model), Ranks())


def weights(model: GPT) -> list[torch.Tensor]:
    return [t.clone() for t in model.state_dict().values()]


def test_accumulated_micro_batches_are_one_batch(tiny: OwnDataset) -> None:
    """Four micro-batches of 128 tokens give the gradient and loss of one batch of 512."""
    split = stepper(compose(tiny_overrides(tiny)))
    whole = stepper(compose([*tiny_overrides(tiny), "data.micro_batches=1"]))
    ids = torch.randint(320, (16, 33))
    parts = iter([(p[:, :-1], p[:, 1:]) for p in ids.split(4)])
    first = split(parts.__next__, 0.0, 0.9)
    second = whole(lambda: (ids[:, :-1], ids[:, 1:]), 0.0, 0.9)
    assert first.item() == pytest.approx(second.item(), rel=1e-6)
    for p, q in zip(split.model.parameters(), whole.model.parameters(), strict=True):
        assert p.grad is not None and q.grad is not None
        torch.testing.assert_close(p.grad, q.grad, atol=1e-7, rtol=1e-4)


def train_on_rank(rank: int, world_size: int, overrides: list[str]) -> tuple[list[torch.Tensor], float]:
    """Weights and the last mean loss after four steps on the same global batches, whatever the ranks."""
    torch.manual_seed(0)
    cfg = compose([*overrides, f"launch.nproc={world_size}"])
    model = build_model(cfg)
    optimizer = build_optimizer(cfg, model, Ranks(rank, world_size))
    ranks = Ranks(rank, world_size)
    step = TrainStep(cfg, model, optimizer, ranks)
    assert (step.parallel is None) == (world_size == 1 or cfg.optim.muon == "parallel")
    for _ in range(4):
        micro_batches = torch.randint(320, (4, 4, 33))
        stream = iter([(ids[:, :-1], ids[:, 1:]) for ids in micro_batches[rank::world_size]])
        loss = step(stream.__next__, 1.0, 0.9)
    return weights(model), ranks.sum(loss.item())[0] / world_size


@pytest.mark.slow
@pytest.mark.parametrize("form", ["sharded", "parallel"])
def test_clipped_steps_on_two_ranks_are_those_on_one(form: str, tiny: OwnDataset, tmp_path: Path) -> None:
    """Ranks that clipped by their own norms, before the average, would part from the run on one rank."""
    overrides = [*tiny_overrides(tiny), f"optim.muon={form}", "optim.grad_clip_norm=0.5"]
    expected, expected_loss = train_on_rank(0, 1, overrides)
    for found, loss in on_ranks(2, tmp_path, train_on_rank, overrides):
        assert loss == pytest.approx(expected_loss, rel=1e-5)
        for p, q in zip(found, expected, strict=True):
            torch.testing.assert_close(p, q, rtol=1e-3, atol=2e-5)


def test_gradients_are_clipped_to_the_global_norm(tiny: OwnDataset) -> None:
    step = stepper(compose([*tiny_overrides(tiny), "optim.grad_clip_norm=0.01"]))
    ids = torch.randint(320, (4, 33))
    step(lambda: (ids[:, :-1], ids[:, 1:]), 1.0, 0.9)
    grads = [p.grad.flatten() for p in step.model.parameters() if p.grad is not None]
    assert torch.cat(grads).norm().item() == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("form", ["sharded", "parallel"])
def test_warm_up_restores_weights_optimizer_and_random_state(form: str, tiny_cfg: Config) -> None:
    tiny_cfg.schedule.warmup_steps, tiny_cfg.optim.muon = 3, form
    warmed, fresh = stepper(tiny_cfg), stepper(tiny_cfg)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    seen: list[int] = []
    state = TrainState(warmed, Switches(tiny_cfg), StepHooks(tiny_cfg, warmed.model))
    assert proving_warm_up(tiny_cfg, state, seen.append) == []
    assert seen == [1, 2, 3] and torch.equal(torch.rand(1), expected)
    assert all(torch.equal(a, b) for a, b in zip(weights(warmed.model), weights(fresh.model), strict=True))
    assert not any(p.grad.any() for p in warmed.model.parameters() if p.grad is not None)
    batches = [synthetic_batch(tiny_cfg) for _ in range(8)]
    for step in (warmed, fresh):
        stream = iter(batches)
        for _ in range(2):
            step(stream.__next__, 1.0, 0.9)
    assert all(torch.equal(a, b) for a, b in zip(weights(warmed.model), weights(fresh.model), strict=True))
