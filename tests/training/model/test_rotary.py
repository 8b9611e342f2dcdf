"""Rotary embedding as the rotation of complex numbers, on every path that a model takes."""

import pytest
import torch

from golf.training.model.rotary import Rotary, apply_rotary


@pytest.mark.parametrize("dims", [8, 4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_pairs_of_channels_turn_backwards_by_the_position(dims: int, dtype: torch.dtype) -> None:
    """Channel j and j + R/2 are the parts of a number that is multiplied by exp(-i·t·base^(-2j/R)); others stay."""
    x = torch.randn(2, 5, 3, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    rotary = Rotary(dims, base=100.0)
    frequency = torch.tensor([100.0 ** (-2 * j / dims) for j in range(dims // 2)], dtype=torch.float64)
    angle = torch.arange(5, dtype=torch.float64)[:, None, None] * frequency
    number = torch.complex(x[..., : dims // 2].double(), x[..., dims // 2 : dims].double())
    turned = number * torch.polar(torch.ones_like(angle), -angle)
    expected = torch.cat([turned.real, turned.imag, x[..., dims:].double()], dim=-1)
    torch.testing.assert_close(apply_rotary(x, *rotary.tables(5, like=x)).double(), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "settings, seq_len, expected",
    [
        ({}, 64, 10.0),
        ({"reference_len": 32}, 32, 10.0),
        ({"reference_len": 32}, 33, 10.0 * (33 / 32) ** (8 / 6)),
        ({"reference_len": 32}, 64, 10.0 * 2 ** (8 / 6)),
        ({"reference_len": 32, "seq_len": 128}, 16, 10.0 * 4 ** (8 / 6)),
        ({"reference_len": 32, "seq_len": 16}, 128, 10.0),
    ],
)
def test_base_grows_for_sequences_beyond_the_reference(settings: dict[str, int], seq_len: int, expected: float) -> None:
    assert Rotary(8, 10.0, **settings).base_for(seq_len) == pytest.approx(expected, rel=1e-12)
    assert Rotary(2, 10.0, **settings).base_for(seq_len) == 10.0  # the exponent has no value for one pair
