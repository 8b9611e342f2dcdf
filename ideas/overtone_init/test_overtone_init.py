"""The embedding's spectrum is the published one, and its singular vectors stay."""

import pytest
import torch

from golf.training.model.build import build_model
from ideas.overtone_init.overtone_init import with_power_spectrum
from tests.support import compose


@pytest.mark.parametrize("shape", [(30, 12), (12, 30)])
def test_singular_values_fall_as_a_power_and_vectors_stay(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    u, before, v = torch.linalg.svd(matrix, full_matrices=False)
    found = u.T @ with_power_spectrum(matrix, 0.5) @ v.T
    expected = torch.diag(torch.tensor([before[0].item() * k**-0.5 for k in range(1, 13)]))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_the_embedding_of_the_record_ends_five_times_smaller() -> None:
    """1024 × 512 of N(0, 0.005²): largest singular value about 0.273, RMS 0.00098 in place of 0.005."""
    cfg = compose(["scale=record", "model.num_layers=1", "model.compute_dtype=fp32", "tech=[overtone_init]"])
    torch.manual_seed(0)
    weight = build_model(cfg).tok_emb.weight.detach()
    assert torch.linalg.matrix_norm(weight, 2).item() == pytest.approx(0.273, rel=0.02)
    assert weight.square().mean().sqrt().item() == pytest.approx(0.00098, rel=0.02)
