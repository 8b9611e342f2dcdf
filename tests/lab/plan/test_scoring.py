"""Seconds of a sliding score of the whole validation split, from finished runs."""

import dataclasses

import pytest

from golf.bits import Score
from golf.challenge import VALIDATION_TOKENS as TOKENS_BY_VOCABULARY
from golf.lab.corpora.own_text import OwnDataset
from golf.lab.plan.flops import flops_per_scored_token
from golf.lab.plan.history import FinishedRun
from golf.lab.plan.memory import cpu_bytes
from golf.lab.plan.seconds import score_time
from golf.run.folder import RunFolder
from golf.run.result import Result
from golf.settings.config import Config
from golf.settings.hardware import CPU_CORE_FLOPS
from golf.system import cpu_cores
from golf.training.model.build import shapeless_model
from tests.support import ROOT, compose, tiny_overrides

VALIDATION_TOKENS = TOKENS_BY_VOCABULARY[1024]
FINEWEB = ["scale=laptop", "data=fineweb_sp1024", "model=4l", "eval.stride=64", "launch.device=cpu", "eval.dtype=fp32"]
CFG = compose(FINEWEB)
HERE = "EPYC, 2 cores"


def run(cfg: Config, flat_seconds: float, sliding_seconds: float | None) -> FinishedRun:
    result = Result(name="x", variant_id="0", seed=1)
    result.post_quant = Score(3.0, 2.0, 10_000, 24_000, flat_seconds)
    if sliding_seconds:
        result.post_quant_sliding = Score(3.0, 2.0, 10_000, 24_000, sliding_seconds, "sliding window, stride 64")
    return FinishedRun(RunFolder(ROOT), cfg, result, HERE)


def test_a_run_of_the_kind_predicts_itself() -> None:
    model = shapeless_model(CFG)
    found = score_time(CFG, model, "EPYC, 2 cores", [run(CFG, 1.0, 5.0)])
    assert found.seconds is not None and found.basis == "1 sliding score here"
    assert found.seconds == pytest.approx(5.0 / 10_000 * VALIDATION_TOKENS)


def test_a_flat_score_predicts_by_operations() -> None:
    model = shapeless_model(CFG)
    found = score_time(CFG, model, "EPYC, 2 cores", [run(CFG, 2.0, None)])
    work = flops_per_scored_token(CFG, model, 64) / flops_per_scored_token(CFG, model)
    assert found.seconds is not None and 3 < work < 4
    assert found.seconds == pytest.approx(2.0 / 10_000 * VALIDATION_TOKENS * work)


def test_a_score_of_less_than_a_second_tells_nothing_of_others() -> None:
    found = score_time(CFG, shapeless_model(CFG), "EPYC, 2 cores", [run(CFG, 0.03, 0.1)])
    assert found.basis == "rough, by operations"


def test_a_score_with_another_predictor_tells_nothing_of_others() -> None:
    mixed = compose([*FINEWEB, "tech=[byte_ppm]"])
    found = score_time(CFG, shapeless_model(CFG), "EPYC, 2 cores", [run(mixed, 100.0, None)])
    assert found.basis == "rough, by operations"
    found = score_time(mixed, shapeless_model(mixed), "EPYC, 2 cores", [run(mixed, 100.0, None)])
    assert found.basis == "1 flat score here"


def test_ranks_that_shared_a_score_count() -> None:
    both = compose([*FINEWEB, "launch.nproc=2", "data.micro_batches=2"])
    found = score_time(CFG, shapeless_model(CFG), "EPYC, 2 cores", [run(both, 1.0, 5.0)])
    assert found.seconds == pytest.approx(2 * 5.0 / 10_000 * VALIDATION_TOKENS)
    alone = score_time(both, shapeless_model(both), "EPYC, 2 cores", [run(CFG, 1.0, 5.0)])
    assert alone.seconds == pytest.approx(5.0 / 10_000 * VALIDATION_TOKENS / 2)


def test_without_a_finished_run_a_cpu_is_planned_by_operations(tiny: OwnDataset) -> None:
    cfg = compose([*tiny_overrides(tiny), "eval=ttt_lora", "eval.documents=true"])
    model = shapeless_model(cfg)
    found = score_time(cfg, model, "EPYC, 2 cores", [])
    assert found.tokens is not None and found.seconds is not None and found.basis == "rough, by operations"
    rate = CPU_CORE_FLOPS * cpu_cores()
    stride = cfg.eval.stride
    assert found.seconds == pytest.approx(flops_per_scored_token(cfg, model, stride) * found.tokens / rate)
    cfg.eval.ttt.lora_steps = 3
    more = score_time(cfg, model, "EPYC, 2 cores", []).ttt_seconds
    assert found.ttt_seconds is not None and more is not None and more > found.ttt_seconds > 0
    # A rate that a finished run here had takes the place of the rough one.
    measured = score_time(cfg, model, "EPYC, 2 cores", [run(cfg, 1.0, None)])
    assert measured.ttt_seconds == pytest.approx(more * rate / (flops_per_scored_token(cfg, model) * 10_000))


def test_memory_grows_with_tokens_layers_and_ranks() -> None:
    def planned(*overrides: str) -> float:
        cfg = compose(["scale=laptop", "launch.device=cpu", "data.train_batch_tokens=8192", *overrides])
        return cpu_bytes(cfg, shapeless_model(cfg))

    small, large = (planned(f"data.micro_batches={n}") for n in (4, 1))
    assert 1.3e9 < small < large
    assert planned("data.micro_batches=4", "launch.nproc=2") == pytest.approx(2 * small)
    assert planned("experiment=records/2026-04-27_caseops_lqer_9hp") > 2e9


def test_other_text_than_finewebs_has_its_own_tokens(tiny: OwnDataset) -> None:
    cfg = compose([*tiny_overrides(tiny), "eval.stride=0"])
    found = score_time(cfg, shapeless_model(cfg), "EPYC, 2 cores", [run(cfg, 1.0, None)])
    assert found.stride == 0 and found.tokens == tiny.val_tokens
    assert found.seconds == pytest.approx(tiny.val_tokens / 10_000)
    unbuilt = dataclasses.replace(cfg, data=dataclasses.replace(cfg.data, path="nowhere"))
    missing = score_time(unbuilt, shapeless_model(cfg), "EPYC, 2 cores", [run(cfg, 1.0, None)])
    assert missing.seconds is missing.tokens is None and "not built" in missing.basis


def test_nothing_is_said_of_another_machine() -> None:
    on_gpus = dataclasses.replace(CFG, launch=dataclasses.replace(CFG.launch, device="cuda"))
    found = score_time(on_gpus, shapeless_model(CFG), "8× H100", [run(CFG, 1.0, 5.0)])
    assert found.seconds is None and "8× H100" in found.basis
