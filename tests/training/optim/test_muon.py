"""Muon against the public numbers, torch's own implementation, and the polynomial it is made of."""

import numpy as np
import pytest
import torch
from torch import nn

from golf.training.optim.muon import Muon, orthogonalize
from golf.training.ranks import Ranks
from tests.support import parity

SHAPES = [(48, 16), (16, 48), (24, 24), (24, 24), (16, 48)]


def parameters(seed: int = 0) -> list[nn.Parameter]:
    torch.manual_seed(seed)
    return [nn.Parameter(torch.randn(shape)) for shape in SHAPES]


def set_gradients(params: list[nn.Parameter], seed: int) -> None:
    torch.manual_seed(seed)
    for p in params:
        p.grad = torch.randn_like(p)


def test_parity_with_the_public_baseline() -> None:
    arrays, config = parity("muon_baseline")
    params = [nn.Parameter(torch.from_numpy(arrays[f"init/{i}"].copy())) for i in range(3)]
    muon = Muon(params, lr=config["lr"], backend_steps=config["backend_steps"])
    for step in range(4):
        for i, p in enumerate(params):
            p.grad = torch.from_numpy(arrays[f"grad/{step}/{i}"])
        before = [p.detach().clone() for p in params]
        muon.step(1.0, config["momentum"])
        for i, p in enumerate(params):
            expected = torch.from_numpy(arrays[f"after/{step}/{i}"])
            update, reference = p.detach() - before[i], expected - before[i]
            assert (update - reference).norm() / reference.norm() < 2e-2


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_equals_torch_muon(weight_decay: float) -> None:
    """torch mixes gradient and momentum by lerp, which changes the update's length but not its direction."""
    ours, theirs = parameters(), parameters()
    muon = Muon(ours, lr=0.02, weight_decay=weight_decay)
    reference = torch.optim.Muon(
        theirs, lr=0.02, momentum=0.95, weight_decay=weight_decay, adjust_lr_fn="original", ns_steps=5
    )
    for step in range(5):
        set_gradients(ours, step)
        set_gradients(theirs, step)
        before = [p.detach().clone() for p in ours]
        muon.step(1.0, 0.95)
        reference.step()
        for p, q, start in zip(ours, theirs, before, strict=True):
            assert (p - q).norm() / (p - start).norm() < 0.1  # both round in bf16, each in its own order
    cosine = [
        nn.functional.cosine_similarity(p.flatten(), q.flatten(), dim=0) for p, q in zip(ours, theirs, strict=True)
    ]
    assert min(cosine) > 0.9999


@pytest.mark.parametrize(
    ("singular_value", "expected"),
    [(0.01, 0.6989), (0.05, 0.7581), (0.1, 0.7121), (0.3, 1.0796), (0.6, 0.7229), (1.0, 0.6964)],
)
def test_newton_schulz_maps_singular_values_as_its_polynomial(singular_value: float, expected: float) -> None:
    rest = (1 - singular_value**2) ** 0.5  # so that the Frobenius norm is 1 and nothing is rescaled
    matrix = torch.diag(torch.tensor([singular_value, rest]))
    found = orthogonalize(matrix[None], 5, torch.float32)[0]
    assert found[0, 0].item() == pytest.approx(expected, abs=2e-3)


def test_update_has_the_singular_vectors_of_the_gradient() -> None:
    torch.manual_seed(0)
    for shape in ((1, 20, 8), (1, 8, 20)):
        gradient = torch.randn(shape)
        u, _, vt = torch.linalg.svd(gradient[0], full_matrices=False)
        found = u.T @ orthogonalize(gradient, 5, torch.float32)[0] @ vt.T
        diagonal = found.diagonal()
        assert (found - torch.diag(diagonal)).abs().max() < 1e-3
        assert diagonal.min() > 0.65 and diagonal.max() < 1.15


def test_a_zero_gradient_moves_nothing() -> None:
    params = parameters()
    before = [p.detach().clone() for p in params]
    Muon(params, lr=0.1).step(1.0, 0.95)
    assert all(torch.equal(p, b) for p, b in zip(params, before, strict=True))


def test_two_ranks_together_do_what_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each simulated rank fills its part of the exchange buffer; their sum is what all-reduce gives both."""
    alone, shared = parameters(), parameters()
    one = Muon(alone, lr=0.02)
    ranks = [Muon(shared, lr=0.02, ranks=Ranks(r, 2)) for r in (0, 1)]
    monkeypatch.setattr("torch.distributed.all_reduce", lambda flat: None)
    for step in range(3):
        set_gradients(alone, step)
        set_gradients(shared, step)
        one.step(1.0, 0.9)
        parts = [muon._exchange(muon._owned_updates(0.9)) for muon in ranks]
        with torch.no_grad():
            for p, from_first, from_second in zip(shared, *parts, strict=True):
                assert not (from_first.any() and from_second.any())
                p.add_(from_first + from_second, alpha=-0.02)
        assert all(torch.equal(p, q) for p, q in zip(alone, shared, strict=True))


def test_state_survives_saving() -> None:
    params, copies = parameters(), parameters()
    first, second = Muon(params, lr=0.02), Muon(copies, lr=0.02)
    set_gradients(params, 1)
    first.step(1.0, 0.9)
    second.load_state_dict(first.state_dict())
    for p, q in zip(params, copies, strict=True):
        q.data.copy_(p.data)
    set_gradients(params, 2)
    set_gradients(copies, 2)
    first.step(0.5, 0.9)
    second.step(0.5, 0.9)
    assert all(np.array_equal(p.detach(), q.detach()) for p, q in zip(params, copies, strict=True))
