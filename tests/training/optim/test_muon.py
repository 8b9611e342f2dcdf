"""Muon against the public numbers, torch's own implementation, and the polynomial it is made of."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from golf.settings.config import OptimConfig
from golf.training.optim.muon import Muon, orthogonalize
from golf.training.optim.parallel_muon import ParallelMuon
from golf.training.ranks import Ranks
from tests.support import parity

FLOAT32, BFLOAT16 = OptimConfig(matrix_lr=0.02, muon_dtype="fp32"), OptimConfig(matrix_lr=0.02, muon_dtype="bf16")
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
    optim = OptimConfig(matrix_lr=config["lr"], muon_backend_steps=config["backend_steps"], muon_dtype="bf16")
    muon = Muon(params, optim)
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
    muon = Muon(ours, dataclasses.replace(BFLOAT16, muon_wd=weight_decay))
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
    found = orthogonalize(matrix[None], FLOAT32)[0]
    assert found[0, 0].item() == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize(
    ("singular_value", "expected"),
    [
        (0.0005, 0.4775),
        (0.002, 1.1404),
        (0.005, 1.0013),
        (0.02, 1.0594),
        (0.05, 0.9086),
        (0.3, 0.9831),
        (0.9, 0.8749),
        (1.0, 0.8591),
    ],
)
def test_polar_express_maps_singular_values_as_its_polynomials(singular_value: float, expected: float) -> None:
    matrix = torch.diag(torch.tensor([singular_value, (1 - singular_value**2) ** 0.5]))
    found = orthogonalize(matrix[None], dataclasses.replace(FLOAT32, muon_coefficients="polar_express"))[0]
    assert found[0, 0].item() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("form", [Muon, ParallelMuon])
@pytest.mark.parametrize(("dtype", "key", "tolerance"), [("fp32", "after", 1e-4), ("bf16", "after_bf16", 0.1)])
def test_parity_with_the_public_row_normalized_muon(form: Any, dtype: str, key: str, tolerance: float) -> None:
    arrays, config = parity("muoneqr09")
    params = [nn.Parameter(torch.from_numpy(arrays[f"init/{i}"].copy())) for i in range(3)]
    decay = config["weight_decay"]
    muon = form(params, OptimConfig(matrix_lr=1.0, muon_wd=decay, muon_dtype=dtype, muon_row_normalize=True))
    start = [p.detach().clone() for p in params]
    # The case's file lists no values for single steps; these are what its arrays determine, to six digits.
    for step, (lr, momentum) in enumerate([(0.02, 0.9), (0.02, 0.92), (0.02, 0.94), (0.015, 0.95), (0.01, 0.95)]):
        before = [p.detach().clone() for p in params]
        for i, p in enumerate(params):
            p.grad = torch.from_numpy(arrays[f"grad/{step}/{i}"].copy())
        muon.start_reducing([])
        muon.step(lr, momentum)
        for i, p in enumerate(params):
            expected = torch.from_numpy(arrays[f"{key}/{step}/{i}"])
            since = before[i] if dtype == "fp32" else start[i]
            assert (p - expected).norm() <= tolerance * (expected - since).norm()


@pytest.mark.parametrize("form", [Muon, ParallelMuon])
def test_row_normalization_is_the_slow_definition(form: Any) -> None:
    """Own numbers for what the public arrays show: Nesterov, unit rows, five iterations, scale, decay."""
    torch.manual_seed(0)
    start, gradients = torch.randn(12, 8), torch.randn(3, 12, 8) * torch.logspace(-3, 2, 12)[:, None]
    gradients[:, 4] = 0.0  # a row without a gradient stays zero
    param, value = nn.Parameter(start.clone()), start.double()
    muon, buffer = form([param], dataclasses.replace(FLOAT32, muon_wd=0.1, muon_row_normalize=True)), 0.0
    for gradient in gradients:
        param.grad = gradient.clone()
        muon.start_reducing([])
        muon.step(0.5, 0.9)
        buffer = 0.9 * buffer + gradient.double()
        update = gradient.double() + 0.9 * buffer
        update = update / update.norm(dim=1, keepdim=True).clamp(min=1e-7)
        x = update.T / update.norm()
        for _ in range(5):
            x = 3.4445 * x - 4.775 * x @ x.T @ x + 2.0315 * x @ x.T @ x @ x.T @ x
        value = value * (1 - 0.01 * 0.1) - 0.01 * (12 / 8) ** 0.5 * x.T
    torch.testing.assert_close(param.detach().double(), value, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("form", [Muon, ParallelMuon])
@pytest.mark.parametrize("size", [1e-5, 3e-4, 1e-2])
def test_rows_are_divided_by_torchs_rms_norm_with_its_epsilon(form: Any, size: float) -> None:
    eps = torch.finfo(torch.float32).eps
    torch.manual_seed(0)
    gradient = size * torch.randn(12, 8) * torch.logspace(-1, 1, 12)[:, None]
    optim = dataclasses.replace(FLOAT32, muon_row_normalize=True, muon_row_eps=eps)
    param = nn.Parameter(torch.zeros(12, 8))
    muon = form([param], optim)
    param.grad = gradient.clone()
    muon.start_reducing([])
    muon.step(1.0, 0.0)
    divided = orthogonalize(F.rms_norm(gradient, (8,))[None], FLOAT32)[0]
    torch.testing.assert_close(param.detach(), -optim.matrix_lr * (12 / 8) ** 0.5 * divided, atol=1e-6, rtol=1e-5)
    if size < 1e-3:
        unit = orthogonalize(F.normalize(gradient, dim=1)[None], FLOAT32)[0]
        assert (divided - unit).norm() > 0.1 * unit.norm()


def test_the_size_of_a_row_of_gradients_does_not_matter_when_rows_are_normalized() -> None:
    optim = dataclasses.replace(FLOAT32, muon_row_normalize=True)
    plain, scaled = parameters(), parameters()
    first, second = Muon(plain, optim), Muon(scaled, optim)
    for step in range(3):
        set_gradients(plain, step)
        set_gradients(scaled, step)
        for p in scaled:
            assert p.grad is not None
            p.grad.mul_(torch.logspace(-2, 2, p.size(0))[:, None])
        first.step(1.0, 0.9)
        second.step(1.0, 0.9)
    for p, q in zip(plain, scaled, strict=True):
        torch.testing.assert_close(p, q, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("form", [Muon, ParallelMuon])
@pytest.mark.parametrize(("momentum", "limit"), [(0.97, 31.25), (0.99, 64.0)])
def test_momentum_in_bf16_stalls_where_rounding_stops_it(form: Any, momentum: float, limit: float) -> None:
    """A sum of equal gradients should reach 1 / (1 - momentum): 33.3 and 100."""
    param = nn.Parameter(torch.zeros(4, 4))
    muon = form([param], dataclasses.replace(FLOAT32, muon_momentum_dtype="bf16"))
    for _ in range(1000):
        param.grad = torch.ones(4, 4)
        muon.start_reducing([])
        muon.step(0.0, momentum)
    (buffer,) = muon.state_dict().values()
    assert buffer.dtype == torch.bfloat16 and (buffer == limit).all()


def test_update_has_the_singular_vectors_of_the_gradient() -> None:
    torch.manual_seed(0)
    for shape in ((1, 20, 8), (1, 8, 20)):
        gradient = torch.randn(shape)
        u, _, vt = torch.linalg.svd(gradient[0], full_matrices=False)
        found = u.T @ orthogonalize(gradient, FLOAT32)[0] @ vt.T
        diagonal = found.diagonal()
        assert (found - torch.diag(diagonal)).abs().max() < 1e-3
        assert diagonal.min() > 0.65 and diagonal.max() < 1.15


def test_a_zero_gradient_moves_nothing() -> None:
    params = parameters()
    before = [p.detach().clone() for p in params]
    Muon(params, BFLOAT16).step(1.0, 0.95)
    assert all(torch.equal(p, b) for p, b in zip(params, before, strict=True))


def test_two_ranks_together_do_what_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each simulated rank fills its part of the exchange buffer; their sum is what all-reduce gives both."""
    alone, shared = parameters(), parameters()
    one = Muon(alone, BFLOAT16)
    ranks = [Muon(shared, BFLOAT16, ranks=Ranks(r, 2)) for r in (0, 1)]
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
    first, second = Muon(params, BFLOAT16), Muon(copies, BFLOAT16)
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
