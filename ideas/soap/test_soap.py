"""Steps against a slow definition in float64, and Adam where the basis is that of the axes."""

from __future__ import annotations

import numpy as np
import torch

from ideas.adam_matrices.adam_matrices import adam_update
from ideas.soap.soap import Soap

SETTINGS = {"beta1": 0.8, "beta2": 0.9, "shampoo_beta": 0.7, "eps": 1e-8}


def fresh(count: int, rows: int, columns: int) -> dict[str, torch.Tensor]:
    shapes = {"exp_avg": (rows, columns), "exp_avg_sq": (rows, columns), "steps": (1, 1)}
    shapes |= dict.fromkeys(("left", "left_basis"), (rows, rows)) | dict.fromkeys(
        ("right", "right_basis"), (columns,) * 2
    )
    return {name: torch.zeros(count, *shape, dtype=torch.float64) for name, shape in shapes.items()}


def slow(gradients: list[np.ndarray], every: int) -> list[np.ndarray]:
    """Return the updates of one matrix, step by step."""
    rows, columns = gradients[0].shape
    left, right, mean, squares = np.zeros((rows, rows)), np.zeros((columns, columns)), 0.0, 0.0
    found = []
    for t, g in enumerate(gradients, start=1):
        left, right = 0.7 * left + 0.3 * g @ g.T, 0.7 * right + 0.3 * g.T @ g
        if t == 1:
            turn_left, turn_right = np.linalg.eigh(left)[1], np.linalg.eigh(right)[1]
        elif (t - 1) % every == 0:
            turn_left, turn_right = np.linalg.qr(left @ turn_left)[0], np.linalg.qr(right @ turn_right)[0]
        mean = 0.8 * mean + 0.2 * g
        squares = 0.9 * squares + 0.1 * (turn_left.T @ g @ turn_right) ** 2
        direction = turn_left.T @ (mean / (1 - 0.8**t)) @ turn_right
        found.append(turn_left @ (direction / (np.sqrt(squares / (1 - 0.9**t)) + 1e-8)) @ turn_right.T)
    return found


def test_steps_are_those_of_the_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    gradients = [torch.randn(2, 4, 3, generator=generator, dtype=torch.float64) for _ in range(5)]
    state, soap = fresh(2, 4, 3), Soap(every=2, **SETTINGS)
    found = [soap(g, state).numpy() for g in gradients]
    for matrix in range(2):
        # The first gradient has three of four dimensions, and rounding in the fourth is divided by eps.
        for step, expected in enumerate(slow([g[matrix].numpy() for g in gradients], 2)):
            np.testing.assert_allclose(found[step][matrix], expected, rtol=1e-5, atol=1e-6)


def test_with_gradients_along_the_axes_it_is_adam() -> None:
    """A diagonal gradient has the axes as its eigenbasis, up to signs and order."""
    generator = torch.Generator().manual_seed(0)
    state = fresh(1, 3, 3)
    adam = {"exp_avg": torch.zeros(1, 3, 3), "exp_avg_sq": torch.zeros(1, 3, 3), "steps": torch.zeros(1, 1, 1)}
    soap = Soap(every=1000, **SETTINGS)
    for _ in range(4):
        grads = torch.diag_embed(torch.randn(1, 3, generator=generator) + 3)
        expected = adam_update(grads, adam, beta1=0.8, beta2=0.9, eps=1e-8)
        torch.testing.assert_close(
            soap(grads, state).float().diagonal(dim1=1, dim2=2), expected.diagonal(dim1=1, dim2=2)
        )


def test_a_matrix_without_a_gradient_stays() -> None:
    state = fresh(1, 3, 2)
    assert torch.equal(
        Soap(every=1, **SETTINGS)(torch.zeros(1, 3, 2), state), torch.zeros(1, 3, 2, dtype=torch.float64)
    )
