"""Clipping against torch's own."""

import pytest
import torch
from torch import nn

from golf.training.optim.clipping import scale_to_norm, squared_norm

CPU = torch.device("cpu")


@pytest.mark.parametrize("max_norm", [0.3, 1e6])
def test_equals_torch(max_norm: float) -> None:
    torch.manual_seed(0)
    ours = [torch.randn(5, 7), torch.randn(3), torch.randn(4, 4)]
    theirs = [nn.Parameter(g.clone()) for g in ours]
    for p in theirs:
        p.grad = p.detach().clone()
    total = torch.nn.utils.clip_grad_norm_(theirs, max_norm)
    squared = squared_norm(ours, CPU)
    assert squared.sqrt().item() == pytest.approx(total.item(), rel=1e-6)
    scale_to_norm(ours, squared, max_norm)
    for found, p in zip(ours, theirs, strict=True):
        assert p.grad is not None
        torch.testing.assert_close(found, p.grad, rtol=1e-6, atol=0)


def test_the_norm_of_bf16_gradients_is_not_rounded_to_bf16() -> None:
    gradients = [torch.full((1000,), 1.0, dtype=torch.bfloat16), torch.full((3,), 2.0)]
    squared = squared_norm(gradients, CPU)
    assert squared.item() == pytest.approx(1012)  # bf16 has 1008 and 1016
    scale_to_norm(gradients, squared, 0.5)
    assert [g.dtype for g in gradients] == [torch.bfloat16, torch.float32]
    assert squared_norm(gradients, CPU).sqrt().item() == pytest.approx(0.5, rel=1e-2)


def test_no_gradient_has_no_norm() -> None:
    assert squared_norm([], CPU).item() == 0.0
