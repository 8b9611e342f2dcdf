"""Learning rate and momentum over a run, at the points the public runs are known by."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golf.config import Config
from golf.loop.schedule import lr_multiplier, muon_momentum
from tests.support import parity


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


def test_no_warmdown_and_no_momentum_warmup() -> None:
    cfg = config(600, 0)
    cfg.optim.muon_momentum_warmup_steps = 0
    assert lr_multiplier(cfg, 10, 599.9) == 1.0
    assert muon_momentum(cfg.optim, 0) == cfg.optim.muon_momentum
