"""The loss against its formula by hand, where it is least, its gradient, and what it counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import golf
from golf.training.model.objective import Pass
from ideas.chunk_ratio.chunk_ratio import ratio_loss
from tests.support import refusal

SMALL = ["model=4l", "scale=laptop", "data=pydocs_bytes", "model.model_dim=32", "model.compute_dtype=fp32"]


def done(p: Tensor) -> Pass:
    nothing: Any = None
    return Pass(nothing, nothing, nothing, nothing, nothing, nothing, (), {"hnet.probability": p})


def test_the_loss_is_the_formula() -> None:
    p = torch.tensor([[1.0, 0.5, 0.25], [0.75, 0.125, 0.0]])
    hard, soft, target = 3 / 6, 2.625 / 6, 4
    expected = 0.03 * 4 / 3 * (3 * hard * soft + (1 - hard) * (1 - soft))
    assert ratio_loss(done(p), weight=0.03, target=target).item() == pytest.approx(expected)


@pytest.mark.parametrize("target", [2.5, 4.0, 6.0])
def test_it_is_least_at_the_target_and_pulls_towards_it(target: float) -> None:
    def of(share: float) -> tuple[float, float]:
        # A share of tokens with p = 1, the others with 0: F = G.
        p = torch.zeros(1, 3000)
        p[0, : round(3000 * share)] = 1
        p.requires_grad_()
        loss = ratio_loss(done(p), weight=1.0, target=target)
        return loss.item(), torch.autograd.grad(loss, p)[0].sum().item()

    losses = {step: of(step / 100)[0] for step in range(1, 100)}
    assert min(losses, key=lambda step: losses[step]) == pytest.approx(100 / target, abs=0.5)
    assert of(1 / target)[0] == pytest.approx(1, abs=1e-3)
    assert of(0.9 / target)[1] < 0 < of(1.1 / target)[1]


def test_training_adds_it_to_the_nats_of_the_score() -> None:
    chosen, terms = ["tech=[hnet,chunk_ratio]", "tech.chunk_ratio={weight:0.5,target:3}"], []
    # Boundaries count without regard to their room.
    for cap in (1, 24):
        model: Any = golf.build_model(golf.compose([*SMALL, *chosen, f"tech.hnet.cap={cap}"]))
        ids = torch.randint(2, 260, (2, 24), generator=torch.Generator().manual_seed(0))
        loss, plain = model(ids, ids.roll(-1, 1), ()), model.token_losses(ids, ids.roll(-1, 1), ()).mean()
        p = model.passed(ids, ())[1]["hnet.probability"]
        assert model.mean_nats.item() == pytest.approx(plain.item()) and (p >= 0.5).sum() > 4
        terms.append((loss - plain).item())
        assert terms[-1] == pytest.approx(ratio_loss(done(p), weight=0.5, target=3).item(), rel=1e-4)
    assert terms[0] == pytest.approx(terms[1], rel=1e-4)


def test_it_needs_chunks() -> None:
    assert "hnet" in refusal(*SMALL, "tech=[chunk_ratio]")
