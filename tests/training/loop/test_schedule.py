"""Learning rate and momentum over a run, at the points the public runs are known by."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golf.settings.config import Config
from golf.training.loop.schedule import (
    decays_from_the_start,
    lr_multiplier,
    muon_momentum,
    muon_weight_decay,
    progress_fraction,
    schedule_decay,
    weight_decay_factor,
)
from golf.training.model.build import build_model
from golf.training.optim.groups import build_optimizer
from tests.support import compose, parity


def config(seconds: float, warmdown: int, iterations: int = 20_000) -> Config:
    cfg = Config()
    cfg.budget.train_seconds, cfg.schedule.warmdown_iters, cfg.schedule.iterations = seconds, warmdown, iterations
    return cfg


@pytest.mark.parametrize(
    ("step_ms", "starts_at"),
    [(43.54, 600 - 52.25), (370.0, 156.0)],  # the baseline on eight GPUs; on one, the warm-down eats the run
)
def test_warmdown_starts_where_its_steps_still_fit(step_ms: float, starts_at: float) -> None:
    cfg = config(600, 1200)
    for offset, decays in ((-1.0, False), (1.0, True)):
        elapsed = starts_at + offset
        step = round(elapsed / (step_ms / 1000))
        assert (lr_multiplier(cfg, step, step * step_ms / 1000) < 1.0) == decays


def test_multiplier_follows_the_time_left() -> None:
    cfg = config(600, 1200)
    warmdown_seconds = 1200 * 0.5
    assert lr_multiplier(cfg, 1000, 500.0) == pytest.approx(100 / warmdown_seconds)
    assert lr_multiplier(cfg, 1200, 600.0) == 0.0
    assert lr_multiplier(cfg, 1300, 650.0) == 0.0
    assert lr_multiplier(cfg, 0, 0.0) == 1.0


@given(
    step=st.integers(0, 30_000),
    elapsed=st.floats(0, 700),
    warmdown=st.integers(0, 5000),
    budget=st.sampled_from([0, 600]),
)
def test_multiplier_is_a_fraction_that_never_rises_late(step: int, elapsed: float, warmdown: int, budget: int) -> None:
    cfg = config(budget, warmdown)
    now = lr_multiplier(cfg, step, elapsed)
    assert 0.0 <= now <= 1.0
    if step > 0 and elapsed > 0:
        later = lr_multiplier(cfg, 2 * step, 2 * elapsed)  # the same pace
        assert later <= now


def test_without_a_clock_the_last_iterations_decay() -> None:
    arrays, settings = parity("trajectory_baseline")
    cfg = config(0, settings["warmdown"], settings["iters"])
    cfg.optim.muon_momentum_warmup_steps, cfg.optim.muon_momentum_warmup_start = settings["mw"], settings["m0"]
    assert np.allclose([lr_multiplier(cfg, s, 0.0) for s in range(24)], arrays["lr_mult"])
    assert np.allclose([muon_momentum(cfg.optim, s) for s in range(24)], arrays["momentum"])


@pytest.mark.parametrize(
    ("elapsed", "expected"), [(0.0, 1.0), (479.9, 1.0), (480.0, 1.0), (510.0, 0.75), (540.0, 0.5), (600.0, 0.0)]
)
@pytest.mark.parametrize("step", [1, 1_774, 50_000])  # at whatever pace
def test_a_fraction_is_a_share_of_the_time_and_wins_over_steps(elapsed: float, expected: float, step: int) -> None:
    cfg = config(600, 1200)
    cfg.schedule.warmdown_fraction = 0.2
    assert lr_multiplier(cfg, step, elapsed) == pytest.approx(expected)


def test_a_fraction_without_a_clock_is_a_share_of_the_steps() -> None:
    """Upstream starts at step int(24 · 0.8) = 19 and counts down the five that are left."""
    cfg = config(0, 12, iterations=24)
    cfg.schedule.warmdown_fraction = 0.2
    found = [lr_multiplier(cfg, step, 99.0) for step in (0, 12, 18, 19, 20, 21, 23, 24)]
    assert found == pytest.approx([1, 1, 1, 1, 0.8, 0.6, 0.2, 0])


@pytest.mark.parametrize("seconds", [0, 600])
@pytest.mark.parametrize("fraction", [0.0, 0.5])
def test_the_multiplier_stops_at_its_floor(seconds: float, fraction: float) -> None:
    """Both kinds of warm-down here cover the second half of 100 steps."""
    cfg = config(seconds, 50, iterations=100)
    cfg.schedule.warmdown_fraction, cfg.schedule.min_lr = fraction, 0.1
    found = [lr_multiplier(cfg, step, 6.0 * step) for step in (0, 49, 75, 90, 97, 100)]
    assert found == pytest.approx([1.0, 1.0, 0.5, 0.2, 0.1, 0.1])


def test_a_longer_fraction_as_in_april() -> None:
    """mult = max((1 − progress) / φ, floor) for φ = 0.667."""
    cfg = config(588, 0)
    cfg.schedule.warmdown_fraction = 0.667
    for progress in (0.34, 0.5, 0.9):
        assert lr_multiplier(cfg, 1000, 588 * progress) == pytest.approx((1 - progress) / 0.667)


def test_a_warmdown_longer_than_the_run_is_told() -> None:
    """1,200 steps at 370 ms fit into 600 s and not into 400."""
    assert decays_from_the_start(config(600, 1200), 10, 3.7) is None
    told = decays_from_the_start(config(400, 1200), 10, 3.7)
    assert told and "warmdown_iters=1200 is 1.1 times the run at this pace (370 ms a step)" in told
    without_clock = config(0, 1200, iterations=1199)
    assert decays_from_the_start(without_clock, 10, 3.7) is not None
    without_clock.schedule.warmdown_fraction = 1.0  # asked for in so many words
    assert decays_from_the_start(without_clock, 10, 3.7) is None
    # A warm-down over all steps is what was asked for, too.
    assert decays_from_the_start(config(0, 1200, iterations=1200), 10, 3.7) is None


def test_no_warmdown_and_no_momentum_warmup() -> None:
    cfg = config(600, 0)
    cfg.optim.muon_momentum_warmup_steps = 0
    assert lr_multiplier(cfg, 10, 599.9) == 1.0
    assert muon_momentum(cfg.optim, 0) == cfg.optim.muon_momentum


def test_weight_decay_falls_as_in_the_record_with_a_taper() -> None:
    """Record 2026-04-18: from 70 % of the run on, linearly to half."""
    cfg = Config()
    cfg.optim.muon_wd, cfg.schedule.muon_wd_taper_start, cfg.schedule.muon_wd_taper_final = 0.095, 0.7, 0.5
    found = [muon_weight_decay(cfg, fraction) / 0.095 for fraction in (0.0, 0.7, 0.85, 1.0)]
    assert found == pytest.approx([1.0, 1.0, 0.75, 0.5])
    cfg.schedule.muon_wd_taper_final = 1.0
    assert muon_weight_decay(cfg, 1.0) == 0.095


def test_parity_with_decays_that_fall_and_rise() -> None:
    """PR #2020: factors at 201 shares of the run, on the decays of all groups."""
    _, case = parity("wdsched2020")
    e = case["effective"]
    cfg = compose(["scale=laptop", "optim.muon_wd=0.095", "optim.adam_wd=0.02", "optim.embed_wd=0.085"])
    hold, ramp = e["wd_sched_hold_frac"], e["wd_sched_ramp_frac"]
    low, high = e["wd_sched_low_factor"], e["wd_sched_high_factor"]
    cfg.schedule.weight_decay_shares, cfg.schedule.weight_decay_factors = [hold, ramp, 1.0], [1.0, low, high]
    optimizer = build_optimizer(cfg, build_model(cfg))
    for fraction, expected in zip(case["fraction"], case["factor"], strict=True):
        assert weight_decay_factor(cfg, fraction) == pytest.approx(expected, abs=1e-12)
        schedule_decay(cfg, optimizer, fraction)
        found = [part.weight_decay for part in optimizer.parts()]
        assert found == pytest.approx([0.095 * expected, 0.085 * expected, 0.02 * expected])


@pytest.mark.parametrize(
    "seconds, step, elapsed, expected",
    [(0.0, 0, 9.0, 0.0), (0.0, 30, 9.0, 0.3), (0.0, 100, 9.0, 1.0), (10.0, 30, 1.0, 0.3), (10.0, 30, 5.0, 0.5)],
)
def test_progress_is_that_of_steps_or_clock_whichever_is_larger(
    seconds: float, step: int, elapsed: float, expected: float
) -> None:
    cfg = compose(["scale=laptop", "schedule.iterations=100", f"budget.train_seconds={seconds}"])
    assert progress_fraction(cfg, step, elapsed) == pytest.approx(expected)
    assert progress_fraction(cfg, 150, elapsed) == 1.0
