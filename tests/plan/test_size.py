"""Intervals: as wide as the evidence is apart, wider with less of it."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golf.composition import compose
from golf.loop.schedule import lr_multiplier
from golf.plan.size import combined
from golf.plan.spread import Walk, expected_size, path_length

RATIOS = st.lists(st.floats(0.9, 1.1), min_size=2, max_size=8)


@given(RATIOS)
def test_never_more_precise_than_the_spread(ratios: list[float]) -> None:
    factor, half_width = combined(ratios, [1.0] * len(ratios), 0.01)
    mean = sum(ratios) / len(ratios)
    spread = math.sqrt(sum((r - mean) ** 2 for r in ratios) / (len(ratios) - 1))
    assert half_width >= spread and min(1.0, *ratios) - 1e-9 <= factor <= max(1.0, *ratios) + 1e-9


@given(st.floats(0.9, 1.1))
def test_more_of_the_same_narrows_but_not_to_nothing(ratio: float) -> None:
    widths = [combined([ratio] * n, [1.0] * n, 0.01)[1] for n in (1, 2, 4, 8, 16)]
    assert all(a > b for a, b in itertools.pairwise(widths)) and widths[-1] > 0.004


def test_without_evidence_the_prior_speaks() -> None:
    factor, half_width = combined([], [], 0.01)
    assert factor == 1.0 and half_width == pytest.approx(0.045, abs=0.001)  # t(3) · 1 % · √2


@given(slope=st.floats(0.4, 1.0), path=st.floats(1.0, 10.0))
def test_sizes_follow_a_power_of_the_path(slope: float, path: float) -> None:
    walks = [Walk(p, 0.5 * p**slope, frozenset()) for p in (1.0, 2.0, 4.0, 8.0)]
    size = expected_size("blocks.mlp.fc.weight", 100, path, frozenset(), walks)
    assert size.rms == pytest.approx(0.05 * path**slope, rel=0.15) and size.runs == 4


def test_far_from_every_run_the_size_is_less_certain() -> None:
    walks = [Walk(p, 0.5 * p**0.7, frozenset()) for p in (1.0, 2.0)]
    near, far = (expected_size("blocks.attn.c_q.weight", 64, p, frozenset(), walks) for p in (1.5, 500.0))
    shipped = expected_size("blocks.attn.c_q.weight", 64, 1.5, frozenset(), [])
    assert near.log_sd < shipped.log_sd < far.log_sd


@pytest.mark.parametrize("decay", [0.0, 0.04])
def test_a_long_schedule_is_summed_as_the_steps_themselves(decay: float) -> None:
    cfg = compose(["scale=record", "budget=unlimited", f"optim.muon_wd={decay}"])
    steps, exact = 9000, 0.0
    cfg.schedule.iterations = steps
    for step in range(steps):
        stride = cfg.optim.matrix_lr * lr_multiplier(cfg, step, 0.0)
        exact = exact * (1 - decay * stride) + stride
    assert path_length(cfg, "blocks.attn.proj.weight", steps) == pytest.approx(exact, rel=2e-3)
    assert path_length(cfg, "blocks.attn.proj.weight", 10_000_000) > exact / 2  # and this returns at once
