"""Three steps against the formula, one matrix and one row at a time in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import golf
from ideas.normuon.normuon import normalized


def slow(updates: list[Tensor], beta2: float, axis: str) -> list[Tensor]:
    """Return the normalised updates of one matrix, step by step."""
    transposed = axis == "longer" and updates[0].size(0) < updates[0].size(1)
    found, running = [], [0.0] * (updates[0].size(1) if transposed else updates[0].size(0))
    for update in updates:
        rows = (update.T if transposed else update).tolist()
        for i, row in enumerate(rows):
            running[i] = beta2 * running[i] + (1 - beta2) * sum(x * x for x in row) / len(row)
        scaled = [[x / math.sqrt(max(v, 1e-10)) for x in row] for row, v in zip(rows, running, strict=True)]
        length, new = (math.sqrt(sum(x * x for row in matrix for x in row)) for matrix in (rows, scaled))
        out = torch.tensor([[x * length / new for x in row] for row in scaled], dtype=torch.float64)
        found.append(out.T if transposed else out)
    return found


@pytest.mark.parametrize("axis", ["rows", "longer"])
@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
def test_steps_are_those_of_the_formula(shape: tuple[int, int], axis: str) -> None:
    torch.manual_seed(0)
    updates = [torch.randn(2, *shape, dtype=torch.float64) for _ in range(3)]
    wide = axis == "longer" and shape[0] < shape[1]
    state = {"neuron_squares": torch.zeros(2, *((1, shape[1]) if wide else (shape[0], 1)))}
    found = [normalized(update, update, state, beta2=0.9, axis=axis) for update in updates]
    for matrix in range(2):
        expected = slow([update[matrix] for update in updates], 0.9, axis)
        for step in range(3):
            # The state is float32.
            torch.testing.assert_close(found[step][matrix], expected[step], rtol=1e-5, atol=1e-6)


def test_a_matrix_without_a_gradient_stays() -> None:
    state = {"neuron_squares": torch.zeros(1, 3, 1)}
    assert torch.equal(
        normalized(torch.zeros(1, 3, 4), torch.zeros(1, 3, 4), state, beta2=0.9, axis="rows"), torch.zeros(1, 3, 4)
    )


def test_every_row_of_an_update_has_one_length() -> None:
    cfg = golf.compose(["model=4l", "scale=laptop", "tech=[normuon]", "tech.normuon.beta2=0", "optim.muon_dtype=fp32"])
    model = golf.build_model(cfg)
    optimizer = golf.build_optimizer(cfg, model)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    ids = torch.randint(0, 1024, (2, 33))
    model(ids[:, :-1], ids[:, 1:]).backward()
    optimizer.step()
    name = "blocks.0.mlp.proj.weight"
    lengths = (model.get_parameter(name) - before[name]).norm(dim=1)
    assert lengths.min() > 0
    torch.testing.assert_close(lengths, lengths.mean().expand_as(lengths), rtol=1e-3, atol=0)
