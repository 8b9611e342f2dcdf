"""The soft staircase: published values, its limits, its shape, and the weights that come of it."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from golf.run.progress import Progress
from golf.settings.config import Config, ModelConfig, QuantConfig, TensorQuant
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from ideas.soft_round.soft_round import SoftRound, soft_round

SHARPNESS = st.floats(1.0, 16.0)
ON = ("soft_round",)


def slow_value_and_slope(y: float, alpha: float) -> tuple[float, float]:
    r = y - math.floor(y) - 0.5
    value = math.floor(y) + 0.5 + 0.5 * math.tanh(alpha * r) / math.tanh(alpha / 2)
    return value, alpha / 2 * (1 - math.tanh(alpha * r) ** 2) / math.tanh(alpha / 2)


def rounded(y: list[float], alpha: float) -> list[float]:
    return soft_round(torch.tensor(y, dtype=torch.float64), torch.tensor(alpha, dtype=torch.float64)).tolist()


def small_model(quant: QuantConfig) -> GPT:
    shape = ModelConfig(vocab_size=20, num_layers=1, model_dim=16, num_heads=4, num_kv_heads=2, compute_dtype="fp32")
    return build_model(Config(model=shape, quant=quant, tech={"soft_round": SoftRound()}))


def test_published_values() -> None:
    assert rounded([0.4, 0.6, -0.6, 7.4], 16.0) == pytest.approx([0.039, 0.961, -0.961, 7.039], abs=5e-4)


def test_is_the_identity_when_soft_and_rounding_when_sharp() -> None:
    y = [-1.8, -0.4, 0.1, 0.3, 0.7, 2.6]
    assert rounded(y, 1e-3) == pytest.approx(y, abs=1e-6)
    assert rounded(y, 1e4) == [-2.0, 0.0, 0.0, 0.0, 1.0, 3.0]


@pytest.mark.parametrize("alpha", [1.0, 4.0, 16.0])
def test_integers_and_halves_stay_where_they_are(alpha: float) -> None:
    y = [-2.0, -1.5, -1.0, 0.0, 0.5, 3.0]
    assert rounded(y, alpha) == pytest.approx(y)  # the formula of PR #670's text takes 0 to -0.5


@given(st.floats(-40, 40), st.floats(0, 2), SHARPNESS)
@settings(deadline=None)
def test_is_monotone_odd_and_within_half_a_step_on_the_side_of_rounding(y: float, ahead: float, alpha: float) -> None:
    low, high, mirrored = rounded([y, y + ahead, -y], alpha)
    assert low <= high + 1e-9
    assert mirrored == pytest.approx(-low, abs=1e-9)
    assert abs(low - y) <= 0.5
    assert min(y, round(y)) - 1e-9 <= low <= max(y, round(y)) + 1e-9


@given(st.floats(-40, 40), SHARPNESS)
@settings(deadline=None)
def test_value_and_slope_are_those_of_the_formula(y: float, alpha: float) -> None:
    at = torch.tensor(y, dtype=torch.float64, requires_grad=True)
    value = soft_round(at, torch.tensor(alpha, dtype=torch.float64))
    value.backward()
    assert [value.item(), at.grad.item()] == pytest.approx(slow_value_and_slope(y, alpha), rel=1e-6, abs=1e-9)


def test_sharpness_grows_as_the_learning_rate_falls_below_the_threshold() -> None:
    model, technique = small_model(QuantConfig()), SoftRound(lr_threshold=0.4)
    found = []
    for multiplier in (1.0, 0.4, 0.3, 0.1, 0.0):
        progress = Progress(0, 0.0, multiplier)
        technique.before_step(model, progress)
        found.append((technique.is_on(progress), model.soft_round.alpha.item()))
    assert [on for on, _ in found] == [False, False, True, True, True]
    assert [alpha for _, alpha in found] == pytest.approx([1.0, 1.0, 4.75, 12.25, 16.0])


@pytest.mark.parametrize("alpha", [1.0, 16.0])
@pytest.mark.parametrize("floor", ["one_over_qmax", "eps"])
def test_weights_are_scaled_clamped_and_differentiated_with_a_constant_scale(alpha: float, floor: str) -> None:
    model = small_model(QuantConfig(small_numel=0, mlp=TensorQuant("int5", clip_quantile=0.9), scale_floor=floor))
    linear = model.blocks[0].mlp.fc
    linear.weight.data.normal_(0, 1.0, generator=torch.Generator().manual_seed(0))
    model.soft_round.alpha.fill_(alpha)
    effective = linear(torch.eye(16), ON).T
    effective.sum().backward()
    weights, slopes = linear.weight.detach().double().numpy(), linear.weight.grad.numpy()
    for r, c in np.ndindex(*weights.shape):
        clip = np.quantile(np.abs(weights[r]), 0.9)
        step = float(np.float16((max(clip, 1.0) if floor == "one_over_qmax" else clip) / 15))
        soft, slope = slow_value_and_slope(weights[r, c] / step, alpha)
        assert effective[r, c].item() == pytest.approx(step * min(max(soft, -15.0), 15.0), abs=1e-5)
        assert slopes[r, c] == pytest.approx(slope if abs(soft) < 15 else 0.0, rel=1e-3, abs=1e-3)


def test_when_sharp_the_weights_are_the_exported_ones() -> None:
    quant = QuantConfig(small_numel=0, mlp=TensorQuant("int6"))
    model = small_model(quant)
    linear = model.blocks[0].mlp.fc
    model.soft_round.alpha.fill_(1e5)
    step = float(np.float16(1 / 31))  # of rows that reach no further than 1
    codes = torch.randint(-25, 26, linear.weight.shape, generator=torch.Generator().manual_seed(0))
    off_grid = 0.4 * (2 * torch.rand(linear.weight.shape, generator=torch.Generator().manual_seed(1)) - 1)
    linear.weight.data = step * (codes + off_grid)
    torch.testing.assert_close(linear(torch.eye(16), ON).T, step * codes)
    assert torch.equal(linear(torch.eye(16), ()).T, linear.weight)
