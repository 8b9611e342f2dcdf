"""Our Adam group against torch's optimizers."""

import pytest
import torch
from torch import nn

from golf.training.optim.adam import Adam, AdamWithMoments


@pytest.mark.parametrize(
    ("weight_decay", "kind"), [(0.0, torch.optim.Adam), (0.0, torch.optim.AdamW), (0.1, torch.optim.AdamW)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equals_torch(weight_decay: float, kind: type, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    start = [torch.randn(7, 5, dtype=dtype), torch.randn(3, dtype=dtype)]
    ours, theirs = ([nn.Parameter(t.clone()) for t in start] for _ in range(2))
    adam = Adam(ours, lr=0.05, betas=(0.9, 0.95), eps=1e-8, weight_decay=weight_decay)
    reference = kind(theirs, lr=0.05, betas=(0.9, 0.95), eps=1e-8, weight_decay=weight_decay, fused=True)
    for step in range(6):
        multiplier = 1.0 / (step + 1)
        reference.param_groups[0]["lr"] = 0.05 * multiplier
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        adam.step(multiplier)
        reference.step()
    assert all(torch.equal(p, q) for p, q in zip(ours, theirs, strict=True))


def test_a_parameter_without_gradient_stays() -> None:
    moved, still = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    moved.grad = torch.ones(2)
    Adam([moved, still], lr=0.1).step(1.0)
    assert torch.equal(still, torch.ones(2)) and not torch.equal(moved, torch.ones(2))


def test_state_survives_saving() -> None:
    a, b = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    first, second = Adam([a], lr=0.1), Adam([b], lr=0.1)
    a.grad = torch.tensor([1.0, 2.0])
    first.step(1.0)
    b.data.copy_(a.data)
    second.load_state_dict(first.state_dict())
    a.grad = b.grad = torch.tensor([0.5, -1.0])
    first.step(1.0)
    second.step(1.0)
    assert torch.equal(a, b)


def test_float32_moments_of_a_bf16_parameter_are_those_of_a_float32_one() -> None:
    torch.manual_seed(0)
    start = torch.randn(50, dtype=torch.bfloat16)
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.float())
    adam, reference = AdamWithMoments([ours], torch.float32, lr=0.05), torch.optim.AdamW([theirs], lr=0.05, eps=1e-8)
    reference.param_groups[0].update(betas=(0.9, 0.95), weight_decay=0.0)
    for _ in range(5):
        ours.grad = torch.randn(50, dtype=torch.bfloat16)
        theirs.grad = ours.grad.float()
        adam.step(1.0)
        reference.step()
    state = reference.state[theirs]
    torch.testing.assert_close(adam.state["exp_avg_sq"][0], state["exp_avg_sq"])
    torch.testing.assert_close(adam.state["exp_avg"][0], state["exp_avg"])
    assert ours.dtype == torch.bfloat16 and (ours - theirs).abs().max() < 0.05


@pytest.mark.parametrize(("dtype", "stalls"), [(torch.bfloat16, True), (torch.float32, False)])
def test_a_second_moment_in_bf16_does_not_follow_small_changes(dtype: torch.dtype, stalls: bool) -> None:
    param = nn.Parameter(torch.zeros(3))
    adam = AdamWithMoments([param], dtype, lr=0.01, betas=(0.9, 0.99))
    param.grad = torch.ones(3)
    adam.step(1.0)
    for moment in adam.state["exp_avg_sq"]:
        moment.fill_(1.0)
    param.grad = torch.full((3,), 1.15**0.5)  # its square is 15 % larger, and 0.15 % is below half a step of bf16
    adam.step(1.0)
    assert (adam.state["exp_avg_sq"][0] == 1.0).all() == stalls and adam.state["exp_avg"][0].dtype == dtype
