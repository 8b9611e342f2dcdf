"""Inputs of the output matrices have unit RMS, and the MLP computes the formula."""

from typing import Any

import numpy as np
import pytest
import torch

from golf.training.model.kernels.choice import MLPKernel
from ideas.leaky_relu.leaky_relu import LeakyRelu
from ideas.sub_norm.sub_norm import SubNorm
from tests.training.techniques.small import small_model

IDS = torch.tensor([[3, 9, 9, 0, 17], [1, 2, 3, 4, 5]])


@pytest.mark.parametrize("techniques", [[SubNorm()], [LeakyRelu(slope=0.5), SubNorm()]])
def test_output_matrices_read_unit_rms(techniques: list[Any]) -> None:
    model, seen = small_model(*techniques, layers=3), []
    for block in model.blocks:
        for matrix in (block.attn.proj, block.mlp.proj):
            matrix.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with torch.no_grad():
        model.logits(IDS)
    assert len(seen) == 6
    for x in seen:
        torch.testing.assert_close(x.square().mean(-1), torch.ones_like(x[..., 0]), atol=1e-4, rtol=0)


def test_the_mlp_is_that_of_the_formula() -> None:
    mlp = small_model(SubNorm(), layers=2).blocks[0].mlp
    x = torch.randn(5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    inner, outer = (matrix.weight.detach().numpy() for matrix in (mlp.fc, mlp.proj))
    hidden = np.maximum(x.numpy() @ inner.T, 0) ** 2
    hidden /= np.sqrt((hidden**2).mean(-1, keepdims=True))
    np.testing.assert_allclose(mlp(x).detach().numpy(), hidden @ outer.T, rtol=1e-6)


def test_the_fused_kernel_is_refused() -> None:
    model = small_model(SubNorm(), layers=2).bfloat16()
    assert "technique" in MLPKernel(model).problem(torch.device("cpu"))
