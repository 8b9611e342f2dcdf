"""Three steps against the formula, one number at a time."""

from __future__ import annotations

import math

import torch

from ideas.lion_matrices.lion_matrices import lion_update


def test_steps_are_those_of_the_formula() -> None:
    torch.manual_seed(0)
    state, kept = {"exp_avg": torch.zeros(1, 2, 3)}, [0.0] * 6
    for _ in range(3):
        grads = torch.randn(1, 2, 3)
        numbers = grads.flatten().tolist()
        expected = [math.copysign(1, 0.8 * m + 0.2 * g) for m, g in zip(kept, numbers, strict=True)]
        kept = [0.97 * m + 0.03 * g for m, g in zip(kept, numbers, strict=True)]
        assert lion_update(grads, state, beta1=0.8, beta2=0.97).flatten().tolist() == expected
        torch.testing.assert_close(state["exp_avg"].flatten(), torch.tensor(kept))
