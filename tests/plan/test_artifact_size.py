"""Predicted bytes: priors, excess bits, sizes of weights, and intervals that widen with less evidence."""

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golf.plan.artifact_size import has_floor
from golf.plan.excess_bits import PRIORS, UNKNOWN, Features, Measured, Prior, expected_excess, prior_of
from golf.plan.plan import make_plan
from golf.plan.weight_size import SizeSample, expected_size, path_length
from golf.settings.config import PruneConfig
from golf.training.loop.schedule import lr_multiplier
from tests.support import compose

PRIOR = Prior(-0.6, path=0.1, sd=0.03, noise=0.01)
DEVIATIONS = st.lists(st.floats(-0.1, 0.1), min_size=2, max_size=8)


def features(path: float = 3.0, **changes: Any) -> Features:
    return replace(Features(path, 8192, 1024, 112, frozenset(), True), **changes)


@given(DEVIATIONS)
def test_runs_of_the_same_features_are_averaged_and_their_error_is_kept(off: list[float]) -> None:
    """The posterior of a Gaussian process has a closed form if all evidence has the same features."""
    excess = expected_excess(PRIOR, features(), [Measured(features(), -0.6 + x) for x in off])
    share = PRIOR.sd**2 / (PRIOR.sd**2 + PRIOR.noise**2 / len(off))
    assert excess.bits == pytest.approx(-0.6 + share * sum(off) / len(off), abs=1e-6)
    assert excess.sd == pytest.approx(math.sqrt(PRIOR.sd**2 * (1 - share) + PRIOR.noise**2), abs=1e-6)


@given(path=st.floats(0.1, 100.0))
def test_far_from_every_run_the_prior_holds(path: float) -> None:
    near, far = features(path), features(path, tied=False, rows=64, tech=frozenset({"ema"}))
    excess = expected_excess(PRIOR, far, [Measured(near, 5.0)])
    assert (
        excess.bits == pytest.approx(PRIOR.at(far), abs=0.05) and excess.sd > 0.9 * expected_excess(PRIOR, far, []).sd
    )
    assert PRIOR.at(near) == pytest.approx(-0.6 + 0.1 * math.log(path / 3))


def test_more_evidence_narrows_the_interval_to_the_noise() -> None:
    sds = [expected_excess(PRIOR, features(), [Measured(features(), -0.6)] * n).sd for n in (0, 1, 2, 4, 8)]
    assert all(a > b for a, b in itertools.pairwise(sds)) and sds[-1] > PRIOR.noise


@pytest.mark.parametrize(
    "setting, rule",
    [("quant.mlp.clip=std", "std"), ("quant.mlp.clip=quantile", "max"), ("quant.mlp.format=int5", "floor")],
)
def test_priors_are_chosen_by_scale_rule(setting: str, rule: str) -> None:
    floor = "one_over_qmax" if rule == "floor" else "eps"
    cfg = compose(["quant.codec=zlib", setting, f"quant.mlp.scale_floor={floor}"])
    shipped = PRIORS.get((rule, "bytes", "fc"), UNKNOWN[rule])
    assert prior_of("blocks.mlp.fc.weight", cfg.quant.mlp, cfg) == shipped
    assert has_floor(cfg.quant)  # of the other classes


@pytest.mark.parametrize("cap, ends", [(1_000_000, (0, 0)), (300_000, (0.01, 0.99)), (100_000, (1, 1))])
def test_pruning_to_fit_ends_at_the_cap_if_it_can(cap: int, ends: tuple[float, float]) -> None:
    overrides = ["scale=laptop", "model=4l", "quant=int6_mixed", "quant.codec=zlib", "quant.codec_level=9"]
    overrides += ["quant.scale_floor=eps", "quant.prune.codes=all", "schedule.iterations=60", "budget.train_seconds=0"]
    overrides += ["rules.code_bytes=estimate"]
    free = make_plan(compose(overrides), [])
    plan = make_plan(
        compose([*overrides, "quant.prune.to_fit=true", f"budget.artifact_bytes={cap + free.code_bytes}"]), []
    )
    assert plan.pruned is not None and ends[0] <= plan.pruned.expected <= ends[1]
    if cap == 1_000_000:
        assert plan.artifact.bytes == free.artifact.bytes
    if cap == 300_000:
        target = plan.cap_bytes - plan.code_bytes - PruneConfig().margin_bytes
        assert plan.artifact.bytes.expected == target < free.artifact.bytes.expected
    if cap == 100_000:
        assert cap < plan.artifact.bytes.expected < free.artifact.bytes.expected


@given(slope=st.floats(0.4, 1.0), path=st.floats(1.0, 10.0))
def test_sizes_follow_a_power_of_the_path(slope: float, path: float) -> None:
    samples = [SizeSample(p, 0.5 * p**slope, frozenset()) for p in (1.0, 2.0, 4.0, 8.0)]
    size = expected_size("blocks.mlp.proj.weight", 100, path, frozenset(), samples)  # starts at zero
    assert size.rms == pytest.approx(0.05 * path**slope, rel=0.15) and size.runs == 4


def test_far_from_every_run_the_size_is_less_certain() -> None:
    samples = [SizeSample(p, 0.5 * p**0.7, frozenset()) for p in (1.0, 2.0)]
    near, far = (expected_size("blocks.attn.c_q.weight", 64, p, frozenset(), samples) for p in (1.5, 500.0))
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
