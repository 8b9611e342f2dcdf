"""The kernels in Triton give what torch's operations give, forward and backward, under Triton's interpreter.

`test_kernels.py` runs these tests in a process of their own, which has TRITON_INTERPRET=1 before it imports Triton.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from golf.settings.config import ModelConfig
from golf.training.model.gpt import GPT, capped_losses
from golf.training.model.kernels.choice import LossKernel, MLPKernel, kernel_module
from golf.training.model.layers import MLP
from ideas.leaky_relu.leaky_relu import LeakyReluSquared

SMALL = ModelConfig(num_layers=2, model_dim=32, num_heads=4, num_kv_heads=2, vocab_size=40, attention="sdpa")
BESIDE = 4096  # numbers
WIDTHS = (104, 40, 96)  # rows, width and hidden width, none of them a multiple of its tile


@pytest.fixture(scope="module")
def loss() -> ModuleType:
    return kernel_module("triton_loss")


@pytest.fixture
def mlp(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The kernel of the MLP with tiles for small matrices, several to a program."""
    module = kernel_module("triton_mlp")
    tile = module.Tile(rows=32, columns=64, depth=32)
    monkeypatch.setattr(module, "FORWARD", tile)
    monkeypatch.setattr(module, "BACKWARD", tile)
    return module


@pytest.fixture(autouse=True)
def nothing_beside_the_results(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check that kernels write nothing before and behind what they allocate, but in compiled models."""
    made: list[tuple[Tensor, int]] = []

    def guarded(like: Tensor, size: Sequence[int], dtype: torch.dtype) -> Tensor:
        numbers = math.prod(size)
        whole = plain((numbers + 2 * BESIDE,), 7.0, dtype=dtype, device=like.device)
        made.append((whole, numbers))
        return whole[BESIDE : BESIDE + numbers].view(size)

    plain = torch.full
    # The compiler has to see torch's own functions.
    for name in () if request.node.get_closest_marker("slow") else ("triton_loss", "triton_mlp"):
        module = kernel_module(name)
        empty = types.SimpleNamespace(**vars(torch))
        empty.empty_like = lambda like, **_: guarded(like, like.shape, like.dtype)
        empty.empty = lambda *size, device: guarded(torch.zeros(1, device=device), size, torch.float32)
        monkeypatch.setattr(module, "torch", empty)
    yield
    for whole, numbers in made:
        assert (whole[:BESIDE] == 7).all() and (whole[BESIDE + numbers :] == 7).all()


def passes(function: Any, inputs: list[Tensor], grad: Tensor) -> list[Tensor]:
    """Return the result of `function` and the gradients of `inputs`."""
    inputs = [t.detach().clone().requires_grad_() for t in inputs]
    y = function(*inputs)
    y.backward(grad.to(y.dtype))
    return [y.detach(), *(t.grad for t in inputs)]


@pytest.mark.parametrize(("vocabulary", "cap"), [(40, 30.0), (1024, 30.0), (2100, 60.0)])
def test_losses_and_their_gradient(loss: ModuleType, vocabulary: int, cap: float) -> None:
    """Every row has its own weight in the sum, and logits reach far into the cap."""
    torch.manual_seed(0)
    logits, targets, weights = 40 * torch.randn(2, 3, vocabulary), torch.randint(vocabulary, (2, 3)), torch.rand(2, 3)
    targets[0, 0], targets[1, 2] = 0, vocabulary - 1
    ours = passes(lambda x: loss.fused_losses(x, targets, cap), [logits], weights)
    exact = passes(lambda x: capped_losses_exactly(x, targets, cap), [logits.double()], weights)
    torch.testing.assert_close(ours[0].double(), exact[0], rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(ours[1].double(), exact[1], rtol=1e-4, atol=1e-6)


def test_losses_of_strided_logits_behind_a_sum(loss: ModuleType) -> None:
    """The gradient that comes from a sum is one number for all rows, and logits may be columns of a wider matrix."""
    torch.manual_seed(0)
    wide, targets = torch.randn(6, 80), torch.randint(40, (6,))
    found = []
    for losses in (lambda x: loss.fused_losses(x, targets, 30.0), lambda x: capped_losses_exactly(x, targets, 30.0)):
        x = wide.clone().requires_grad_()
        losses(x[:, ::2]).sum().backward()
        found.append(x.grad)
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)


def capped_losses_exactly(logits: Tensor, targets: Tensor, cap: float) -> Tensor:
    """Return the losses without the function's own rounding to float32."""
    log_probabilities = (cap * torch.tanh(logits / cap)).log_softmax(-1)
    return -log_probabilities.gather(-1, targets[..., None])[..., 0]


def test_losses_of_the_reference(loss: ModuleType) -> None:
    """Numbers of the public kernel (record 2026-04-22 and later), from reference/frontier_model.md §10."""
    logits = torch.tensor([[2.0, -1.0, 0.5, 3.0]])
    losses, grad = passes(lambda x: loss.fused_losses(x, torch.tensor([2]), 30.0), [logits], torch.ones(1))
    assert losses.item() == pytest.approx(2.876622, abs=5e-6)
    torch.testing.assert_close(grad, torch.tensor([[0.250581, 0.012559, -0.943413, 0.672657]]), rtol=0, atol=2e-6)


def test_losses_of_bf16_logits(loss: ModuleType) -> None:
    """Arithmetic is in float32; the gradient has the logits' dtype. The interpreter cuts off where a GPU rounds."""
    torch.manual_seed(0)
    logits, targets = (10 * torch.randn(4, 300)).bfloat16(), torch.randint(300, (4,))
    losses, grad = passes(lambda x: loss.fused_losses(x, targets, 30.0), [logits], torch.ones(4))
    exact = passes(lambda x: capped_losses(x, targets, 30.0), [logits.float()], torch.ones(4))
    assert (losses.dtype, grad.dtype) == (torch.float32, torch.bfloat16)
    torch.testing.assert_close(losses, exact[0], rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(grad.float(), exact[1], rtol=2**-7, atol=1e-7)


@pytest.mark.parametrize("slope", [0.0, 0.3])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-6), (torch.float16, 2e-3)])
def test_mlp_and_its_gradients(mlp: ModuleType, slope: float, dtype: torch.dtype, bound: float) -> None:
    torch.manual_seed(0)
    rows, width, hidden = WIDTHS
    inputs = [torch.randn(2, rows // 2, width), torch.randn(hidden, width) / 6, torch.randn(width, hidden) / 10]
    inputs, grad = [t.to(dtype) for t in inputs], torch.randn(2, rows // 2, width).to(dtype)
    ours = passes(lambda x, up, down: mlp.fused_mlp(x, up, down, slope), inputs, grad)
    exact = passes(lambda x, up, down: defined_mlp(x, up, down, slope), [t.double() for t in inputs], grad)
    for mine, other in zip(ours, exact, strict=True):
        assert mine.dtype == dtype and mine.shape == other.shape
        assert (mine - other).norm() <= bound * other.norm()


def defined_mlp(x: Tensor, up: Tensor, down: Tensor, slope: float) -> Tensor:
    return F.linear(LeakyReluSquared(slope)(F.linear(x, up)), down)


def test_the_derivative_at_known_points(mlp: ModuleType) -> None:
    """x² has the slope 4 at 2, (x/2)² the slope -1 at -2, and both are flat at 0."""
    x = torch.tensor([[2.0], [-2.0], [0.0]]).repeat(1, 8)
    y, slopes, *_ = passes(lambda *t: mlp.fused_mlp(*t, 0.5), [x, torch.eye(8), torch.eye(8)], torch.ones_like(x))
    assert y[:, 0].tolist() == [4.0, 1.0, 0.0] and slopes[:, 0].tolist() == [4.0, -1.0, 0.0]


@pytest.mark.slow
@pytest.mark.parametrize("slope", [0.0, 0.5])
def test_a_compiled_model_with_both_kernels(loss: ModuleType, mlp: ModuleType, slope: float) -> None:
    """Loss and gradients of a whole model stay what they are, in one graph without a break."""
    torch.manual_seed(0)
    ids, targets = torch.randint(40, (2, 2, 12))
    models = [GPT(dataclasses.replace(SMALL, compute_dtype="fp32")) for _ in range(2)]
    for param in models[0].parameters():
        torch.nn.init.normal_(param, std=0.2)
    models[1].load_state_dict(models[0].state_dict())
    for model in models:
        for module in model.modules():
            if isinstance(module, MLP) and slope:
                module.activation = LeakyReluSquared(slope)
    LossKernel(models[1]).use()
    MLPKernel(models[1]).use()
    plain = models[0](ids, targets)
    fused = torch.compile(models[1], backend="aot_eager", fullgraph=True)(ids, targets)
    assert fused.item() == pytest.approx(plain.item(), rel=1e-6)
    for loss_value in (plain, fused):
        loss_value.backward()
    for (name, one), other in zip(models[0].named_parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad, rtol=1e-4, atol=1e-6, msg=name)
