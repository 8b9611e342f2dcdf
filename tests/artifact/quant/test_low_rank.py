"""Low-rank repair: the asymmetric factors of the record of 27 April, and which matrices get them."""

import dataclasses

import pytest
import torch

from golf.artifact.quant.formats import CodedTensor, decode
from golf.artifact.quant.low_rank import A, B, asymmetric, repair
from golf.artifact.quant.policy import dequantize, quantize
from golf.settings.config import LQERConfig, QuantConfig, TensorQuant

INT4 = QuantConfig(attn=TensorQuant("int4"), mlp=TensorQuant("int4"), small_numel=0, scale_floor="eps")


def test_codes_of_a_worked_example() -> None:
    """A = [[.9, -.3], [-1.2, .4], [.1, 1.5]] has scale 1 and codes 1 0 / -1 0 / 0 1; the largest value is cut."""
    a = torch.tensor([[0.9, -1.2, 0.1], [-0.3, 0.4, 1.5]])
    b = torch.zeros(2, 64)
    b[0, :4], b[1, :4] = torch.tensor([-7.5, 7.5, 1.2, 0.0]), torch.tensor([3.75, -1.0, 0.26, 0.0])
    coded_a, coded_b = asymmetric(a, b, 64)
    assert coded_a.scale == 1.0 and coded_a.data.T.tolist() == [[1, 0], [-1, 0], [0, 1]]
    assert coded_b.scale is not None and coded_b.scale.tolist() == [1.0, 0.5]
    assert coded_b.data[:, :4].tolist() == [[-8, 7, 1, 0], [7, -2, 1, 0]]


@pytest.mark.parametrize(("rows", "columns"), [(24, 32), (8, 80)])
def test_groups_of_b_run_over_its_rows(rows: int, columns: int) -> None:
    w = torch.randn(rows, columns, generator=torch.Generator().manual_seed(1))
    lqer = LQERConfig(rank=4, factors="asymmetric", error="weights")
    plain = quantize({"blocks.0.mlp.fc.weight": w}, INT4)["blocks.0.mlp.fc.weight"]
    coded = quantize({"blocks.0.mlp.fc.weight": w}, dataclasses.replace(INT4, lqer=lqer))
    a, b = coded["blocks.0.mlp.fc.weight" + A], coded["blocks.0.mlp.fc.weight" + B]
    assert a.data.shape == (4, rows) and b.data.shape == (4 * columns // 64, 64)
    assert a.data.min() >= -2 and a.data.max() <= 1 and b.data.min() >= -8 and b.data.max() <= 7
    _, _, v = torch.linalg.svd(w.double() - decode(plain).double())
    exact = v[:4].reshape(-1, 64)
    step = exact.abs().amax(1) / 7.5
    # Half a step, and as much again for the positive maximum, whose code is the last.
    assert ((decode(b).double() - exact).abs() <= (0.51 * step)[:, None]).all()
    expected = decode(plain) + decode(a).T @ decode(b).view(4, columns)
    torch.testing.assert_close(dequantize(coded)["blocks.0.mlp.fc.weight"], expected)


@pytest.mark.parametrize(("error", "chosen"), [("output", "planted"), ("weights", "white")])
def test_a_matrix_is_chosen_by_what_is_asked_for(error: str, chosen: str) -> None:
    """White error is the larger, but four directions hold little of it; the record goes by the size alone."""
    random = torch.Generator().manual_seed(2)
    white = torch.randn(32, 64, generator=random)
    planted = 0.9 * white.norm() * torch.outer(torch.ones(32), torch.ones(64)) / 2048**0.5
    weights = {"white": white, "planted": planted}
    # Codes of zero leave all of a matrix to repair.
    coded = {
        name: CodedTensor(torch.zeros(32, 64, dtype=torch.int8), torch.ones(32).half(), w.dtype)
        for name, w in weights.items()
    }
    quant = dataclasses.replace(INT4, lqer=LQERConfig(rank=4, top=1, factors="asymmetric", error=error))
    repaired = repair(coded, weights, list(weights), quant, {})
    assert {*repaired} == {"white", "planted", chosen + A, chosen + B}


def test_factors_of_rows_halve_an_error_of_low_rank_and_rank_zero_adds_none() -> None:
    random = torch.Generator().manual_seed(3)
    weights = {"blocks.0.attn.proj.weight": torch.randn(24, 4, generator=random) @ torch.randn(4, 32, generator=random)}
    ((name, w),) = weights.items()
    coarse = dataclasses.replace(INT4, attn=TensorQuant("ternary"))
    errors = {}
    for rank in (0, 4):
        coded = quantize(weights, dataclasses.replace(coarse, lqer=LQERConfig(rank=rank)))
        assert {*coded} == ({name, name + A, name + B} if rank else {name})
        errors[rank] = (dequantize(coded)[name] - w).norm()
    assert errors[4] < 0.8 * errors[0]
