"""Steps against the formula, one element at a time in float64, and a step of a whole model."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import golf
from ideas.adamuon.adamuon import adapted, signs

SETTINGS = {"beta": 0.9, "eps": 1e-8, "rms": 0.2}


def slow(updates: list[torch.Tensor], muons_scale: float) -> list[torch.Tensor]:
    """Return the steps of one matrix from its orthogonalised updates, before Muon's own scale."""
    rows, columns = updates[0].shape
    running, found = [[0.0] * columns for _ in range(rows)], []
    for update in updates:
        numbers = update.tolist()
        for i in range(rows):
            for j in range(columns):
                running[i][j] = 0.9 * running[i][j] + 0.1 * numbers[i][j] ** 2
        scaled = [[numbers[i][j] / (math.sqrt(running[i][j]) + 1e-8) for j in range(columns)] for i in range(rows)]
        length = math.sqrt(sum(x * x for row in scaled for x in row))
        size = 0.2 * math.sqrt(rows * columns) / muons_scale
        found.append(torch.tensor([[size * x / length for x in row] for row in scaled], dtype=torch.float64))
    return found


@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
def test_steps_are_those_of_the_formula(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    updates = [torch.randn(2, *shape, dtype=torch.float64) for _ in range(3)]
    state = {"element_squares": torch.zeros(2, *shape)}
    found = [adapted(update, update, state, **SETTINGS) for update in updates]
    scale = math.sqrt(max(1.0, shape[0] / shape[1]))
    for matrix in range(2):
        expected = slow([update[matrix] for update in updates], scale)
        for step in range(3):
            # The state is float32.
            torch.testing.assert_close(found[step][matrix], expected[step], rtol=1e-5, atol=1e-6)


def test_a_matrix_without_a_gradient_stays() -> None:
    zeros = torch.zeros(1, 3, 4)
    assert torch.equal(adapted(signs(zeros, zeros, {}), zeros, {"element_squares": zeros.clone()}, **SETTINGS), zeros)


def newton_schulz(matrix: np.ndarray) -> np.ndarray:
    """Return five iterations of a·X + b·XXᵀX + c·(XXᵀ)²X from X = matrix / ‖matrix‖."""
    x = matrix / np.linalg.norm(matrix)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x


@pytest.mark.parametrize("form", ["sharded", "parallel"])
def test_steps_of_a_model_are_those_of_the_definition(form: str) -> None:
    chosen = ["model=4l", "scale=laptop", "model.model_dim=32", "model.num_heads=2", "model.num_kv_heads=1"]
    chosen += ["model.compute_dtype=fp32", "optim.muon_dtype=fp32", "optim.muon_wd=0", f"optim.muon={form}"]
    cfg = golf.compose([*chosen, "tech=[adamuon]", "tech.adamuon.beta=0.9", "optim.matrix_lr=0.01"])
    model = golf.build_model(cfg)
    optimizer = golf.build_optimizer(cfg, model)
    tall, wide = "blocks.0.mlp.fc.weight", "blocks.0.mlp.proj.weight"
    momentum = {name: np.zeros(tuple(model.get_parameter(name).shape)) for name in (tall, wide)}
    updates: dict[str, list[torch.Tensor]] = {tall: [], wide: []}
    torch.manual_seed(0)
    for _ in range(2):
        before = {name: model.get_parameter(name).detach().double().clone() for name in updates}
        optimizer.zero_grad()
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        for name in updates:
            grad = model.get_parameter(name).grad.double().numpy()
            momentum[name] = 0.9 * momentum[name] + grad
            updates[name].append(torch.from_numpy(newton_schulz(np.sign(grad + 0.9 * momentum[name]))))
        optimizer.step(1.0, 0.9)
        for name, seen in updates.items():
            moved = model.get_parameter(name).detach().double() - before[name]
            torch.testing.assert_close(moved, -0.01 * slow(seen, 1.0)[-1], rtol=1e-2, atol=1e-5)
            assert moved.square().mean().sqrt().item() == pytest.approx(0.01 * 0.2, rel=1e-3)


def test_rows_of_unit_norm_are_refused() -> None:
    with pytest.raises(golf.GolfError, match=r"set optim\.muon_row_normalize=false"):
        golf.compose(["tech=[adamuon]", "optim.muon_row_normalize=true"])
