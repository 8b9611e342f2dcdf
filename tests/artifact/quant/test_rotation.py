"""The rotation against scipy-free Hadamard matrices, and what it is for."""

import pytest
import torch

from golf.artifact.quant.formats import block_size, rotate
from golf.artifact.quant.policy import dequantize, quantize
from golf.settings.config import QuantConfig, TensorQuant


def sylvester(size: int) -> torch.Tensor:
    h = torch.ones(1, 1, dtype=torch.float64)
    while h.size(0) < size:
        h = torch.cat((torch.cat((h, h), 1), torch.cat((h, -h), 1)))
    return h / size**0.5


@pytest.mark.parametrize(("columns", "block"), [(512, 512), (1536, 512), (112, 16), (7, 1), (64, 64)])
def test_is_the_block_diagonal_sylvester_matrix(columns: int, block: int) -> None:
    assert block_size(columns) == block
    w = torch.randn(3, columns, dtype=torch.float64)
    expected = w @ torch.block_diag(*[sylvester(block)] * (columns // block))
    torch.testing.assert_close(rotate(w), expected)
    torch.testing.assert_close(rotate(rotate(w)), w)


def test_an_outlier_costs_its_row_less_when_rotated() -> None:
    w = torch.randn(4, 64, generator=torch.Generator().manual_seed(0)) * 0.02
    w[:, 5] = 1.0
    state = {"blocks.0.mlp.fc.weight": w}

    def error(rotation: str) -> float:
        quant = QuantConfig(
            mlp=TensorQuant("int6", clip_quantile=1.0, rotation=rotation), small_numel=0, scale_floor="eps"
        )
        return (dequantize(quantize(state, quant))["blocks.0.mlp.fc.weight"] - w).square().sum().item()

    assert error("hadamard") < 0.5 * error("none")
