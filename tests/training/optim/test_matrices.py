"""Row blocks: which matrices a parameter holds, and that both forms of Muon treat them as parameters of their own."""

from typing import Any

import pytest
import torch
from torch import nn

from golf.errors import GolfError
from golf.settings.config import OptimConfig
from golf.training.optim.matrices import declared_row_counts, matrices_of
from golf.training.optim.muon import Muon
from golf.training.optim.parallel_muon import ParallelMuon

ROWS = [16, 8, 8]


class Fused(nn.Module):
    """Query, key and value stored as one, next to a matrix that is one."""

    def __init__(self, rows: list[int]) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 32, bias=False)
        self.qkv.separate_rows = {"weight": rows}  # type: ignore[assignment]
        self.proj = nn.Linear(16, 16, bias=False)


def test_matrices_are_views_in_order() -> None:
    fused, whole = nn.Parameter(torch.randn(32, 16)), nn.Parameter(torch.randn(4, 2))
    matrices = matrices_of([fused, whole], {fused: ROWS})
    assert [tuple(m.shape) for m in matrices] == [(16, 16), (8, 16), (8, 16), (4, 2)]
    assert not matrices[1].grad.any() and matrices[1].grad.shape == (8, 16)
    matrices[1].value.fill_(7.0)
    assert (fused[16:24] == 7).all() and not (fused[:16] == 7).any() and not (fused[24:] == 7).any()
    fused.grad = torch.arange(512.0).view(32, 16)
    assert torch.equal(matrices[2].grad, fused.grad[24:])


def test_modules_declare_their_rows() -> None:
    fused = Fused(ROWS)
    assert declared_row_counts(nn.Sequential(fused, nn.Linear(3, 3))) == {fused.qkv.weight: ROWS}


@pytest.mark.parametrize("rows", [[16, 8], [16, 16, 0], [16, 8, 8, 8]])
def test_rows_that_do_not_add_up_are_an_error(rows: list[int]) -> None:
    with pytest.raises(GolfError, match=r"separate_rows of 0\.qkv cuts weight \(32, 16\) .* add up to 32"):
        declared_row_counts(nn.Sequential(Fused(rows)))


@pytest.mark.parametrize("form", [Muon, ParallelMuon])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_fused_storage_trains_as_three_parameters_do(form: Any, dtype: str) -> None:
    torch.manual_seed(0)
    separate = [nn.Parameter(torch.randn(rows, 16)) for _ in range(2) for rows in ROWS]
    fused = [nn.Parameter(torch.cat([p.detach() for p in separate[i : i + 3]])) for i in (0, 3)]
    optim = OptimConfig(matrix_lr=0.02, muon_wd=0.1, muon_dtype=dtype)
    apart, together = form(separate, optim), form(fused, optim, row_counts=dict.fromkeys(fused, ROWS))
    start = fused[0].detach().clone()
    for step in range(4):
        for p in separate:
            p.grad = torch.randn_like(p)
        for i, p in enumerate(fused):
            p.grad = torch.cat([q.grad for q in separate[3 * i : 3 * i + 3] if q.grad is not None])
        for muon in (apart, together):
            muon.start_reducing([])
            muon.step(1.0 / (step + 1), 0.9)
    for i, p in enumerate(fused):
        assert torch.equal(p, torch.cat([q.detach() for q in separate[3 * i : 3 * i + 3]]))
    assert not torch.equal(fused[0], start)


def test_a_fused_matrix_without_declaration_is_another_optimizer() -> None:
    torch.manual_seed(0)
    one, many = nn.Parameter(torch.zeros(32, 16)), nn.Parameter(torch.zeros(32, 16))
    one.grad = torch.randn(32, 16)
    many.grad = one.grad.clone()
    Muon([one], OptimConfig(matrix_lr=0.1)).step(1.0, 0.9)
    Muon([many], OptimConfig(matrix_lr=0.1), row_counts={many: ROWS}).step(1.0, 0.9)
    assert (one - many).norm() / many.norm() > 0.1
