"""Column steps: the error that theory promises, at the bits of one step a row."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from golf.artifact.quant.columns import column_steps
from golf.artifact.quant.formats import CodedTensor, decode
from golf.artifact.quant.gptq import encode_gptq, weighted_errors
from golf.artifact.quant.low_rank import B
from golf.artifact.quant.policy import dequantize, quantize
from golf.errors import GolfError
from golf.lab.artifacts.inspection import stored_entropy_bits
from golf.settings.config import GPTQConfig, LQERConfig, QuantConfig, TensorQuant, TrellisConfig
from tests.support import parity, refusal

HOW = TensorQuant("int6", clip="std", clip_k=12.85, scale_floor="eps", rounding="gptq")
QUANT = QuantConfig(attn=HOW, gptq=GPTQConfig(damping=[0.01]))


def case(rows: int, columns: int, spread: float = 1.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Weights, and a Hessian of correlated inputs whose sizes differ by `spread` nats."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((4 * columns, columns)) @ random.standard_normal((columns, columns))
    x *= np.exp(random.normal(0, spread, columns))
    return torch.from_numpy(random.standard_normal((rows, columns)).astype(np.float32)), torch.from_numpy(x.T @ x)


def stored(w: Tensor, h: Tensor, **changes: Any) -> CodedTensor:
    """Return the codes of `w` under HOW with `changes`."""
    how = dataclasses.replace(HOW, **changes)
    return encode_gptq(w, how, dataclasses.replace(QUANT, attn=how, trellis=TrellisConfig(bit_price=0.1)), h)


def error_of(coded: CodedTensor, w: Tensor, h: Tensor) -> float:
    return float(weighted_errors(w.double(), decode(coded).double(), h).sum())


def ideal_bits(coded: CodedTensor) -> float:
    """Bits of a coder that knows the variance of each column."""
    return float(sum(stored_entropy_bits(CodedTensor(c, None, torch.float32)) for c in coded.data.T))


def test_the_steps_are_quarter_octaves() -> None:
    steps = column_steps(torch.arange(-128, 128, dtype=torch.int8))
    np.testing.assert_allclose(steps.numpy(), 2.0 ** (np.arange(-128, 128) / 4), rtol=1e-7)


@pytest.mark.parametrize("seed", range(3))
def test_the_error_is_a_geometric_mean_instead_of_an_arithmetic_one(seed: int) -> None:
    w, h = case(400, 48, seed=seed)
    plain = stored(w, h)
    filled = stored(w, h, columns=1.0)
    damped = h.numpy() + 0.01 * np.diag(h).mean() * np.eye(48)
    order = np.argsort(-np.diag(h))
    variances = np.diag(np.linalg.cholesky(np.linalg.inv(damped[np.ix_(order, order)])).T) ** -2.0
    promised = np.exp(np.log(variances).mean()) / variances.mean()
    found = error_of(filled, w, h) / error_of(plain, w, h)
    assert promised < 0.9 and found == pytest.approx(promised, rel=0.1)
    assert ideal_bits(filled) == pytest.approx(ideal_bits(plain), rel=0.04)


@settings(max_examples=20, deadline=None)
@given(
    exponent=st.sampled_from([0.3, 0.5, 1.0]),
    rounding=st.sampled_from(["gptq", "trellis"]),
    kind=st.sampled_from(["equal", "dead", "one direction", "all dead"]),
    rotation=st.sampled_from(["none", "hadamard"]),
    seed=st.integers(0, 99),
)
def test_any_matrix_gets_codes(exponent: float, rounding: str, kind: str, rotation: str, seed: int) -> None:
    w, h = case(6, 16, spread=3.0, seed=seed)
    if kind == "dead":
        h[[1, 5]], h[:, [1, 5]] = 0, 0
    elif kind == "one direction":
        h = h[:, :1] @ h[:1]
    elif kind == "all dead":
        h = torch.zeros_like(h)
    coded = stored(w, h, columns=exponent, rounding=rounding, rotation=rotation)
    nothing = float(weighted_errors(w.double(), torch.zeros_like(w).double(), h).sum())
    assert decode(coded).isfinite().all() and error_of(coded, w, h) <= 0.1 * nothing + 1e-9
    if kind == "dead" and rotation == "none" and rounding == "gptq":
        assert not coded.data[:, [1, 5]].any()


def test_a_column_step_is_never_so_fine_that_weights_are_cut_off() -> None:
    w, h = case(30, 16, spread=0.0)
    h[3, 3] *= 1e9
    w[:, 3] *= 40
    coded = stored(w, h, columns=1.0)
    assert float(((decode(coded) - w)[:, 3]).abs().max()) < 0.05 * float(w[:, 3].abs().max())


def test_one_step_for_a_whole_matrix() -> None:
    w, h = case(20, 16)
    w[0] *= 9
    coded = quantize(
        {"blocks.0.attn.c_q.weight": w},
        QuantConfig(small_numel=0, attn=dataclasses.replace(HOW, clip="matrix_std")),
        {"blocks.0.attn.c_q.weight": h},
    )
    scale = coded["blocks.0.attn.c_q.weight"].scale
    assert scale is not None and float(scale[0]) == pytest.approx(12.85 * float(w.std()) / 31, rel=1e-3)
    assert (scale == scale[0]).all()


def test_column_steps_without_inputs_are_refused() -> None:
    assert refusal("quant.mlp.columns=0.5") == (
        "quant.mlp.columns=0.5 needs the inputs of the layers: set quant.mlp.rounding=gptq."
    )
    with pytest.raises(GolfError, match="needs the model's inputs"):
        quantize({"a": torch.ones(4, 4)}, QuantConfig(other=TensorQuant(rounding="trellis")))


def test_parity_with_finer_columns_of_the_embedding() -> None:
    """PR #1908: the same columns, scales and errors. Its finer step is 63/127 of the other one, and here it is half."""
    arrays, config = parity("awq2014")
    name, width = "tok_emb.weight", config["env"]["AWQ_LITE_GROUP_SIZE"]
    w, h = torch.from_numpy(arrays[f"w/{name}"]), torch.from_numpy(arrays[f"H/{name}"])
    how = TensorQuant("int7", clip="std", clip_k=14.0, rounding="gptq", finer_columns=width)
    quant = QuantConfig(embed=how, scale_floor="eps", chosen_by="matrix", small_numel=0)
    quant.gptq = GPTQConfig(damping=[0.01], unused_inputs="one")
    coded = encode_gptq(w, how, quant, h)
    assert coded.columns is not None and coded.scale is not None
    (start,) = config["selected"][0]["starts"]
    assert coded.columns.nonzero().flatten().tolist() == list(range(start, start + width))
    assert torch.equal(coded.scale, torch.from_numpy(arrays[f"out/{name}.scale"]))
    theirs = torch.from_numpy(arrays[f"out/{name}.q"]).double() * coded.scale.double()[:, None]
    finer = slice(start, start + width)
    finer_scale = torch.from_numpy(arrays[f"out/{name}.awqg_s_hi"]).double()
    theirs[:, finer] *= (finer_scale / coded.scale.double())[:, None]
    expected = float(weighted_errors(w.double(), theirs, h.double()).sum())
    assert error_of(coded, w, h.double()) == pytest.approx(expected, rel=0.005)
    plain = encode_gptq(w, dataclasses.replace(how, finer_columns=0), quant, h)
    assert error_of(plain, w, h.double()) > 1.05 * expected
    groups = {g["start"]: g["score"] for g in config["candidates"] if g["name"] == name}
    weight = (torch.from_numpy(arrays[f"act_rms/{name}"]) * w.abs().mean(0)).view(-1, width).sum(1)
    assert weight.tolist() == pytest.approx([groups[start] for start in sorted(groups)], rel=1e-4)


def test_groups_of_low_rank_factors_are_the_settings() -> None:
    """LQER of PR #2060 on the codes of the same case: groups of 32 values."""
    arrays, config = parity("awq2014")
    name = "blocks.0.mlp.fc.weight"
    how = TensorQuant("int6", clip="std", clip_k=11.5, rounding="gptq")
    lqer = LQERConfig(rank=4, top=1, factors="asymmetric", error="weights", group=config["env"]["LQER_ASYM_GROUP"])
    quant = QuantConfig(mlp=how, scale_floor="eps", chosen_by="matrix", small_numel=0, lqer=lqer)
    quant.gptq = GPTQConfig(damping=[0.01], unused_inputs="one")
    coded = quantize(
        {name: torch.from_numpy(arrays[f"w/{name}"])}, quant, {name: torch.from_numpy(arrays[f"H/{name}"])}
    )
    codes = torch.from_numpy(arrays[f"out/{name}.q"])
    assert (coded[name].data != codes).double().mean() < 0.005
    a, b = (torch.from_numpy(arrays[f"out/{name}.lq{part}_a"]).double() for part in "AB")
    scale_a, scale_b = (torch.from_numpy(arrays[f"out/{name}.lq{part}s_a"]).double() for part in "AB")
    assert coded[name + B].data.shape == (scale_b.numel(), 32)
    whole = codes.double() * torch.from_numpy(arrays[f"out/{name}.scale"]).double()[:, None]
    whole += (a * scale_a) @ (b.view(-1, 32) * scale_b[:, None]).view(4, -1)
    w = torch.from_numpy(arrays[f"w/{name}"]).double()
    expected = float((w - whole).norm())
    assert float((w - dequantize(coded)[name].double()).norm()) == pytest.approx(expected, rel=0.01)
    assert expected == pytest.approx(config["tensors"][name]["error"], rel=1e-3)
