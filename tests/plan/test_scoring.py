"""Seconds of a sliding score of the whole validation split, from finished runs."""

import pytest

from golf.bits import Score
from golf.challenge import VALIDATION_TOKENS as TOKENS_BY_VOCABULARY
from golf.plan.flops import flops_per_scored_token
from golf.plan.history import FinishedRun
from golf.plan.seconds import sliding_score
from golf.run.folder import RunFolder
from golf.run.result import Result
from golf.settings.config import Config
from golf.training.model.build import shapeless_model
from tests.support import ROOT, compose

VALIDATION_TOKENS = TOKENS_BY_VOCABULARY[1024]
CFG = compose(["scale=laptop", "model=4l", "eval.stride=64", "launch.device=cpu", "eval.dtype=fp32"])
HERE = {"cpu": "EPYC", "cpu_cores": 2}


def run(cfg: Config, flat_seconds: float, sliding_seconds: float | None) -> FinishedRun:
    result = Result(name="x", variant_id="0", seed=1)
    result.post_quant = Score(3.0, 2.0, 10_000, 24_000, flat_seconds)
    if sliding_seconds:
        result.post_quant_sliding = Score(3.0, 2.0, 10_000, 24_000, sliding_seconds, "sliding window, stride 64")
    return FinishedRun(RunFolder(ROOT), cfg, result, HERE)


def test_a_run_of_the_kind_predicts_itself() -> None:
    model = shapeless_model(CFG)
    found = sliding_score(CFG, model, "EPYC, 2 cores", [run(CFG, 1.0, 5.0)])
    assert found.seconds is not None and found.basis == "1 sliding scores here"
    assert found.seconds[1] == pytest.approx(5.0 / 10_000 * VALIDATION_TOKENS)
    assert found.seconds[8] == pytest.approx(found.seconds[1] / 8)


def test_a_flat_score_predicts_by_operations() -> None:
    model = shapeless_model(CFG)
    found = sliding_score(CFG, model, "EPYC, 2 cores", [run(CFG, 2.0, None)])
    work = flops_per_scored_token(CFG, model, 64) / flops_per_scored_token(CFG, model)
    assert found.seconds is not None and 3 < work < 4
    assert found.seconds[1] == pytest.approx(2.0 / 10_000 * VALIDATION_TOKENS * work)


def test_ranks_that_shared_a_score_count() -> None:
    both = compose(
        ["scale=laptop", "model=4l", "eval.stride=64", "launch.device=cpu", "eval.dtype=fp32", "launch.nproc=2"]
    )
    found = sliding_score(CFG, shapeless_model(CFG), "EPYC, 2 cores", [run(both, 1.0, 5.0)])
    assert found.seconds is not None and found.seconds[1] == pytest.approx(2 * 5.0 / 10_000 * VALIDATION_TOKENS)


def test_nothing_is_said_of_another_machine() -> None:
    found = sliding_score(CFG, shapeless_model(CFG), "8× H100", [run(CFG, 1.0, 5.0)])
    assert found.seconds is None and "8× H100" in found.basis
