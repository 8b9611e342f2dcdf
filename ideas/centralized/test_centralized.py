"""The centring against a loop, and that an orthogonalised step keeps it."""

from __future__ import annotations

import torch

import golf
from ideas.centralized.centralized import centred


def test_each_row_loses_its_mean() -> None:
    torch.manual_seed(0)
    momentum = torch.randn(2, 3, 5, dtype=torch.float64)
    expected = [[[x - sum(row) / 5 for x in row] for row in matrix] for matrix in momentum.tolist()]
    torch.testing.assert_close(centred(momentum, momentum, {}), torch.tensor(expected, dtype=torch.float64))


def test_rows_of_a_step_sum_to_zero() -> None:
    cfg = golf.compose(["model=4l", "scale=laptop", "tech=[centralized]", "optim.muon_dtype=fp32", "optim.muon_wd=0"])
    model = golf.build_model(cfg)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    ids = torch.randint(0, 1024, (2, 33))
    model(ids[:, :-1], ids[:, 1:]).backward()
    golf.build_optimizer(cfg, model).step()
    step = model.get_parameter("blocks.0.mlp.proj.weight") - before["blocks.0.mlp.proj.weight"]
    assert step.norm() > 0
    assert step.sum(dim=1).abs().max() < 1e-4 * step.abs().sum(dim=1).max()
