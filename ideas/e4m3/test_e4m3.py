"""All 256 codes against the format's definition, rounding against a search, training against the artifact."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import golf
from golf.artifact.container import pack, unpack
from ideas.e4m3.e4m3 import LARGEST, Float8, rounded

STORED = [
    "tech=[e4m3,factored_embedding]",
    "quant.embed.format=e4m3",
    "quant.other.format=e4m3",
    "quant.small_numel=99",
]
IDS = torch.tensor([[3, 9, 9, 0, 17], [1, 2, 3, 4, 5]])


def number_of(code: int) -> float:
    """The number whose bits are `code`: a sign, four bits of exponent with bias 7, three of mantissa."""
    sign, exponent, mantissa = -1 if code >> 7 else 1, code >> 3 & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    return sign * (mantissa / 8 * 2**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7))


def test_codes_are_the_bits_of_the_definition() -> None:
    codes = torch.arange(256).to(torch.uint8).view(torch.int8)
    values = Float8("e4m3").values(codes, torch.zeros(0)).tolist()
    assert [v for v in values if not math.isnan(v)] == [n for n in map(number_of, range(256)) if not math.isnan(n)]
    assert max(v for v in values if not math.isnan(v)) == LARGEST == 448


def test_the_nearest_number_is_stored_and_large_ones_end_at_the_largest() -> None:
    w = torch.randn(2000, generator=torch.Generator().manual_seed(0)) * torch.logspace(-5, 4, 2000)
    form = Float8("e4m3")
    codes, scales = form.codes(w)
    values = form.values(codes, scales)
    known = torch.tensor(sorted({number_of(code) for code in range(256) if code & 127 != 127}))
    nearest = (known[None] - w[:, None]).abs().min(1).values
    torch.testing.assert_close((values - w).abs(), nearest, rtol=0, atol=0)
    assert torch.equal(form.codes(values)[0], codes) and len(scales) == 0


def test_lookup_and_maps_are_trained_as_stored() -> None:
    cfg = golf.compose(["model=4l", "scale=laptop", *STORED])
    model = golf.build_model(cfg)
    state: dict[str, Tensor] = dict(model.scored_weights())
    back = unpack(pack(golf.quantize(state, cfg.quant, tech=cfg.tech), cfg.model, cfg.quant, cfg.tech)).state_dict()
    for name in ("embed_proj", "embed_proj_rev"):
        linear = getattr(model, name)
        assert torch.equal(linear.edited_weight(()), back[f"{name}.weight"])
        assert not torch.equal(linear.weight, back[f"{name}.weight"])
    start = model.stream_start(IDS)
    model.load_state_dict(back)
    assert torch.equal(model.stream_start(IDS), start)


def test_gradients_pass_the_rounding() -> None:
    w = torch.tensor([0.3, -7.7, 1e-5], requires_grad=True)
    (rounded(w) * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert w.grad.tolist() == [1, 2, 3] and rounded(w).tolist() == [0.3125, -7.5, 0]


def test_it_needs_a_setting_that_names_it() -> None:
    with pytest.raises(golf.GolfError, match="No setting names the format of tech e4m3"):
        golf.compose(["model=4l", "scale=laptop", "tech=[e4m3]"])
