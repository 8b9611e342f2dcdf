"""Integer formats: the public codes bit for bit, a slow definition, and bounds on the error."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from golf.artifact.quant.formats import FORMATS, QMAX, decode, encode_float, encode_integer, row_quantile
from golf.artifact.quant.policy import dequantize, quantize, storage_of
from golf.settings.config import QuantConfig, TensorQuant
from golf.training.techniques.fake_quant import RoundedWeight
from tests.support import parity

FLOOR, OWN_RANGE = QuantConfig(), QuantConfig(scale_floor="eps")


def test_parity_with_the_public_quantizer() -> None:
    arrays, config = parity("quant_int8_per_row")
    state = {k.removeprefix("in/"): torch.from_numpy(v) for k, v in arrays.items() if k.startswith("in/")}
    coded = quantize(state, QuantConfig())
    for name, tensor in coded.items():
        if f"q/{name}" in arrays:
            assert np.array_equal(tensor.data, arrays[f"q/{name}"])
            assert tensor.scale is not None and np.array_equal(tensor.scale.float(), arrays[f"scale/{name}"])
        else:
            assert np.array_equal(tensor.data.float(), arrays[f"pass/{name}"])
            assert np.array_equal(decode(tensor), arrays[f"dequant/{name}"])
    assert sum(t.payload_bytes for t in coded.values()) == config["stats"]["int8_payload_bytes"]
    assert sum(t.nbytes for t in state.values()) == config["stats"]["baseline_tensor_bytes"]


@pytest.mark.parametrize("fmt", ["int8", "int6"])
@pytest.mark.parametrize("scale_floor", ["one_over_qmax", "eps"])
@given(seed=st.integers(0, 1000), spread=st.floats(0.001, 10))
def test_codes_equal_the_slow_definition(fmt: str, scale_floor: str, seed: int, spread: float) -> None:
    qmax = QMAX[fmt]
    w = (np.random.default_rng(seed).standard_normal((3, 17)) * spread).astype(np.float32)
    coded = encode_integer(
        torch.from_numpy(w), TensorQuant(fmt, clip_quantile=0.99), QuantConfig(scale_floor=scale_floor)
    )
    for r, row in enumerate(w):
        ranked = np.sort(np.abs(row)).astype(np.float64)
        position = 0.99 * (ranked.size - 1)
        low = int(position)
        clip = ranked[low] + (position - low) * (ranked[low + 1] - ranked[low])
        scale = max(clip / qmax, 1 / qmax) if scale_floor == "one_over_qmax" else clip / qmax
        for c, value in enumerate(row):
            exact = min(max(value, -clip), clip) / scale
            assert abs(coded.data[r, c].item() - exact) <= 0.5 + 1e-3
        assert coded.scale is not None and coded.scale[r].item() == pytest.approx(scale, rel=1e-3, abs=2**-25)


@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 700)),
    quantile=st.one_of(st.floats(0, 1), st.sampled_from([0.9999984, 0.999, 0.9995])),
    seed=st.integers(0, 1000),
)
def test_quantiles_of_rows_are_those_of_torch(shape: tuple[int, int], quantile: float, seed: int) -> None:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).abs()
    assert torch.equal(row_quantile(values.sort(dim=1).values, quantile), torch.quantile(values, quantile, dim=1))


@pytest.mark.parametrize(("fmt", "largest"), [("int8", 127), ("int6", 31)])
def test_range_and_error_bound(fmt: str, largest: int) -> None:
    torch.manual_seed(0)
    w = 3 * torch.randn(50, 64)
    coded = encode_integer(w, TensorQuant(fmt, clip_quantile=1.0), FLOOR)
    assert coded.data.abs().max() == largest and coded.data.dtype == torch.int8
    step = w.abs().amax(1, keepdim=True) / largest
    assert ((decode(coded) - w).abs() <= step * (0.5 + largest * 2**-11 + 1e-3)).all()  # fp16 scale: half an ulp


def test_floor_makes_rows_below_one_share_a_step() -> None:
    w = torch.tensor([[0.5, -0.25], [0.004, 0.0]])
    floored = encode_integer(w, TensorQuant("int8", clip_quantile=1.0), FLOOR)
    assert torch.equal(floored.data, torch.tensor([[64, -32], [1, 0]], dtype=torch.int8))
    own = encode_integer(w, TensorQuant("int8", clip_quantile=1.0), OWN_RANGE)
    assert torch.equal(own.data, torch.tensor([[127, -64], [127, 0]], dtype=torch.int8))


@pytest.mark.parametrize("shape", [(4, 5), (7,), (), (2, 3, 4), (0, 3)])
def test_zeros_and_odd_shapes_come_back(shape: tuple[int, ...]) -> None:
    for tensor in (torch.zeros(shape), torch.ones(shape)):
        for fmt in ("int8", "int6"):
            back = decode(encode_integer(tensor, TensorQuant(fmt), FLOOR))
            assert back.shape == tensor.shape
            torch.testing.assert_close(back, tensor, atol=1e-3, rtol=1e-3)


def test_dtypes_come_back() -> None:
    tensor = torch.randn(4, 4, dtype=torch.bfloat16)
    assert decode(encode_integer(tensor, TensorQuant("int8"), OWN_RANGE)).dtype == torch.bfloat16
    assert torch.equal(decode(encode_float(tensor, "fp32")), tensor)


def test_which_tensor_gets_which_format() -> None:
    quant = QuantConfig(embed=TensorQuant("fp16"), attn=TensorQuant("int6"), mlp=TensorQuant("int8"), small_numel=16)
    big, small = torch.zeros(8, 8), torch.zeros(4, 4)
    assert storage_of("tok_emb.weight", big, quant).format == "fp16"
    assert storage_of("blocks.0.attn.c_q.weight", big, quant).format == "int6"
    assert storage_of("blocks.0.mlp.fc.weight", big, quant).format == "int8"
    assert storage_of("blocks.0.attn.c_q.weight", small, quant).format == "fp16"
    assert storage_of("blocks.0.resid_mix", small, quant).format == "fp32"
    assert storage_of("blocks.0.resid_mix", small, dataclasses.replace(quant, control_format="fp16")).format == "fp16"
    assert storage_of("blocks.0.resid_mix", big, quant).format == "int8"
    assert storage_of("steps", torch.zeros(3, dtype=torch.int64), quant).format == "raw"


def test_fp16_embedding_costs_bytes_and_loses_less() -> None:
    state = {"tok_emb.weight": torch.randn(1024, 64)}
    int8, fp16 = (quantize(state, QuantConfig(embed=TensorQuant(fmt), small_numel=0)) for fmt in ("int8", "fp16"))
    errors = [(dequantize(c)["tok_emb.weight"] - state["tok_emb.weight"]).norm() for c in (int8, fp16)]
    assert errors[1] < errors[0] / 10
    assert fp16["tok_emb.weight"].payload_bytes > 1.9 * int8["tok_emb.weight"].payload_bytes


def test_scales_may_be_rounded_before_the_codes_of_low_formats_alone() -> None:
    """The March scripts divide by the stored scale for int6 and by the exact one for int8."""
    w = torch.randn(64, 256, generator=torch.Generator().manual_seed(2))
    for fmt, rounding in (("int6", "before"), ("int8", "after")):
        mixed, expected, other = (
            encode_integer(w, TensorQuant(fmt), dataclasses.replace(OWN_RANGE, scale_rounding=choice)).data
            for choice in ("below_int8", rounding, "after" if rounding == "before" else "before")
        )
        assert torch.equal(mixed, expected) and not torch.equal(mixed, other), fmt


@given(seed=st.integers(0, 1000))
def test_clip_search_is_never_worse_than_any_of_its_quantiles(seed: int) -> None:
    w = torch.from_numpy(np.random.default_rng(seed).standard_t(3, (4, 64)).astype(np.float32))
    # Neither the first nor the last is the best of every row.
    quantiles = [0.9, 1.0, 0.97]

    def row_errors(*searched: float) -> torch.Tensor:
        how = TensorQuant("int4", clip="search", clip_search=list(searched))
        return (decode(encode_integer(w, how, OWN_RANGE)) - w).square().sum(1)

    alone = [row_errors(quantile, quantile) for quantile in quantiles]
    assert torch.equal(row_errors(*quantiles), torch.stack(alone).amin(0))


def test_a_class_may_have_its_own_floor() -> None:
    state = {f"blocks.0.{part}.weight": torch.randn(8, 32) * 0.01 for part in ("attn.c_q", "mlp.fc")}
    mixed = quantize(state, QuantConfig(small_numel=0, mlp=TensorQuant(scale_floor="eps")))
    floor, own = (quantize(state, dataclasses.replace(quant, small_numel=0)) for quant in (FLOOR, OWN_RANGE))
    for name, expected in (("blocks.0.attn.c_q.weight", floor), ("blocks.0.mlp.fc.weight", own)):
        assert torch.equal(mixed[name].data, expected[name].data)
        assert not torch.equal(floor[name].data, own[name].data)


def test_parity_of_gate_rows_and_what_a_name_sets() -> None:
    """The gate of 27 April is int8 by the row's maximum, though small and of a class that is clipped by deviations."""
    arrays, _ = parity("gptq05_sdclip")
    gate = torch.from_numpy(arrays["gate/w"])
    rule = {"format": "int8", "clip": "quantile", "clip_quantile": 1.0, "rounding": "nearest"}
    quant = QuantConfig(attn=TensorQuant("int6", clip="std"), scale_floor="eps", by_name={"*attn_gate*": rule})
    state = {"blocks.0.attn.attn_gate.weight": gate, "blocks.0.attn.c_q.weight": torch.randn(256, 512)}
    coded = quantize(state, dataclasses.replace(quant, scale_rounding="before"))
    (stored, other) = coded.values()
    assert torch.equal(stored.data, torch.from_numpy(arrays["gate/codes"]))
    theirs = torch.from_numpy(arrays["gate/scale"])
    # A row of zeros has a scale of zero there, and the smallest one here.
    assert stored.scale is not None and torch.equal(stored.scale[theirs > 0], theirs[theirs > 0])
    assert not stored.data[theirs == 0].any()
    assert other.data.abs().max() < 32


def test_groups_of_weights_share_scales_and_are_what_training_used() -> None:
    """ŵ = round(w/s)·s with s = mean|w| over 128 weights in row order. A second rounding would shrink it by mean|q|."""
    w = torch.randn(6, 256, generator=torch.Generator().manual_seed(3)) * torch.rand(1, 256)
    how = TensorQuant("ternary", clip="absmean", group_size=128)
    quant = dataclasses.replace(OWN_RANGE, attn=how)
    coded = encode_integer(w, how, quant)
    s = w.view(-1, 128).abs().mean(1, keepdim=True).half().float()
    expected = ((w.view(-1, 128) / s).round().clamp(-1, 1) * s).view(6, 256)
    assert coded.scale is not None and coded.scale.shape == (12,)
    torch.testing.assert_close(decode(coded), expected)
    in_training = RoundedWeight("fake_quant", FORMATS[how.format], how, quant)(w, ("fake_quant",))
    torch.testing.assert_close(in_training, decode(coded))
    assert torch.equal(RoundedWeight("fake_quant", FORMATS[how.format], how, quant)(decode(coded), ()), decode(coded))
