"""Steps by sensitivity: factors are the best ones where nothing limits them, and keep the mean logarithm always."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from golf.artifact.quant.policy import quantize, with_measured_steps
from golf.artifact.quant.sensitivity import FACTOR_LOGS, LEAST_SHARE, STEP, step_factors
from golf.settings.config import QuantConfig, TensorQuant
from tests.support import refusal

LEAST, MOST = map(math.exp, FACTOR_LOGS)


def factors(divergences: list[float], sizes: list[int], exponent: float) -> list[float]:
    names = [f"blocks.{i}.mlp.fc.weight" for i in range(len(sizes))]
    found = step_factors(dict(zip(names, divergences, strict=True)), dict(zip(names, sizes, strict=True)), exponent)
    assert list(found) == [name + STEP for name in names]
    return [float(factor) for factor in found.values()]


def test_the_full_exponent_has_the_least_divergence_for_the_bits() -> None:
    divergences, sizes = np.array([4.0, 1.0, 0.5, 3.0]), np.array([100, 200, 100, 400])

    def divergence(logs: np.ndarray) -> float:
        return float((divergences * np.exp(2 * logs)).sum())

    same_bits = {"type": "eq", "fun": lambda logs: float((sizes * logs).sum()) / 100}
    best = minimize(divergence, np.zeros(4), constraints=[same_bits], tol=1e-12)
    assert best.success
    np.testing.assert_allclose(factors(list(divergences), list(sizes), 1.0), np.exp(best.x), rtol=1e-4)


@given(
    st.lists(
        st.tuples(st.one_of(st.just(0.0), st.floats(1e-9, 1e3)), st.integers(1, 10**7)), min_size=1, max_size=8
    ).filter(lambda pairs: any(divergence > 0 for divergence, _ in pairs)),
    st.floats(0, 1),
)
def test_the_mean_logarithm_stays_and_the_more_sensitive_get_finer_steps(
    pairs: list[tuple[float, int]], exponent: float
) -> None:
    divergences, sizes = (list(part) for part in zip(*pairs, strict=True))
    found = factors(divergences, sizes, exponent)
    assert all(LEAST - 1e-6 <= factor <= MOST + 1e-6 for factor in found)
    mean = sum(n * math.log(factor) for n, factor in zip(sizes, found, strict=True)) / sum(sizes)
    assert abs(mean) < 1e-5
    least = LEAST_SHARE * max(divergences)
    by_worth = sorted(zip((max(d, least) / n for d, n in pairs), found, strict=True))
    assert all(later <= before * (1 + 1e-6) for (_, before), (_, later) in itertools.pairwise(by_worth))


def test_matrices_that_rounding_leaves_as_they_are_have_no_factor_on_their_own() -> None:
    assert step_factors({"a": 0.0, "b": 0.0}, {"a": 10, "b": 20}, 0.75) == {}
    assert factors([0.0, 1.0], [10, 1000], 0.75)[0] == pytest.approx(MOST)


@pytest.mark.parametrize("rounding", ["gptq", "trellis"])
def test_rounding_takes_the_factor_of_each_matrix(rounding: str) -> None:
    how = TensorQuant("int6", clip="matrix_std", rounding=rounding)
    rule = {"blocks.1.*": {"format": "int6", "clip_k": 6.0}}
    quant = QuantConfig(attn=how, mlp=how, by_name=rule, small_numel=0, step_sensitivity=0.75)
    generator = torch.Generator().manual_seed(0)
    weights = {f"blocks.{i}.mlp.fc.weight": torch.randn(16, 8, generator=generator) for i in range(3)}
    hessians = {name: torch.eye(8) for name in weights}
    measured = {f"blocks.{i}.mlp.fc.weight{STEP}": torch.tensor(factor) for i, factor in ((0, 0.5), (1, 2.0))}
    plain, found = (quantize(weights, quant, hessians | more) for more in ({}, measured))
    scales = [tensor.scale for tensor in (*plain.values(), *found.values())]
    ratios = [float(after[0] / before[0]) for before, after in zip(scales[:3], scales[3:], strict=True)]  # type: ignore[index]
    assert ratios == pytest.approx([0.5, 2.0, 1.0], rel=2e-3)
    # A rule of the user's keeps its other settings.
    assert with_measured_steps(quant, weights, measured).by_name["blocks.1.mlp.fc.weight"]["clip_k"] == 12.0


def test_bad_combinations_are_refused() -> None:
    assert "whose clip is a number of deviations" in refusal("quant=int8", "quant.step_sensitivity=0.5")
    assert "whose clip is a number of deviations" in refusal("quant=gptq_int6", "quant.step_sensitivity=0.5")
    others = [f"quant.{name}.clip=quantile" for name in ("embed", "attn", "mlp")]
    assert "whose clip is a number of deviations" in refusal("quant=trellis_sensitive", *others)
    twice = ["quant=sdclip_gptq", "quant.step_sensitivity=0.5", "quant.clip_sensitivity=0.1"]
    assert "set one of them" in refusal(*twice)
