"""Accusations that were false once, each with its neighbours: units, recaps, floats, claims that some line prints."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

from golf.challenge import VALIDATION_BYTES
from golf.field.audit import Audit
from golf.field.folder_audit import audit
from golf.field.import_store import import_folders, record
from golf.field.import_tables import table
from golf.field.imported_entries import entries_of
from golf.settings.composition import rules_named
from tests.field.imports import TOKENS, faults, imported, log

SEED, MS, EVAL_MS = 42, 599_686, 507_652
SLIDING = f"ppm_sliding val_loss:2.0 val_bpb:1.15000000 eval_time:{EVAL_MS}ms\n"


def audited(folder: Path, logs: dict[str, str], claims: dict[str, Any] | None = None, readme: str = "") -> Audit:
    imported(folder, logs, claims, readme)
    return audit(folder, None, rules_named("strict"))


def accusations(found: Audit) -> list[str]:
    return [*found.against_rules, *found.untrue]


def by_seed(name: str, value: float, form: int) -> dict[str, Any]:
    """A claim about the seed, in one of the forms that people use."""
    forms: list[dict[str, Any]] = [
        {f"{name}_by_seed": {str(SEED): value}},
        {f"{name}_per_seed": {f"seed_{SEED}": value}},
        {name: {f"seed_{SEED}": value}, "seeds": [SEED]},
        {"seeds": [SEED], f"{name}_by_seed": [value]},
        {"seed_results": {str(SEED): {name: value}}},
        {"seed_results": [{"seed": SEED, name: value}]},
        {"timing": {"by_seed": {str(SEED): {name: value}}}},
    ]
    return forms[form]


@pytest.mark.parametrize("form", range(7))
@pytest.mark.parametrize("unit", ["ms", "s", "seconds"])
@pytest.mark.parametrize(("what", "ms"), [("train_time", MS), ("training_time", MS), ("eval_time", EVAL_MS)])
def test_a_unit_stands_in_any_part_of_a_key(tmp_path: Path, what: str, ms: int, unit: str, form: int) -> None:
    per_second = 1000 if unit == "ms" else 1
    logs = {f"train_seed{SEED}.log": log(SEED, 1.2, seconds=MS / 1000) + SLIDING}
    for factor, is_true in ((1, True), (1.4, False)):
        claim = by_seed(f"{what}_{unit}", factor * (ms * per_second / 1000), form)
        found = accusations(audited(tmp_path / f"x{factor}", logs, {"author": "A", "val_bpb": 1.15, **claim}))
        told = [fault for fault in found if what in fault]
        assert bool(told) is not is_true, found
        # A time of milliseconds is told in seconds, beside the time of the score that counts.
        assert all(f"{ms / 1000:,.10g}" in fault or "took" in fault for fault in told), told


RUN = f"""model_params:27333833
train_loader:dataset:x train_shards:80
seed:{SEED}
step:5922/20000 val_loss:2.2876 val_bpb:1.3548 train_time:599132ms step_avg:101.17ms
artifact: 16,328,917 bytes (model=16,215,433 code=113,484 limit=16,000,000 excess=328,917)
Size fallback succeeded: 15,876,912 bytes with 5 int5 layers
Serialized model brotli: 15763428 bytes
Code size: 113484 bytes
Total submission size: 15876912 bytes
final_int5_zstd_roundtrip val_loss:2.3583 val_bpb:1.3967 eval_time:28650ms
final_int5_sliding val_loss:2.3134 val_bpb:1.3701 eval_time:60601ms
"""


@pytest.mark.parametrize("draw", range(40))
def test_a_recap_is_no_run(tmp_path: Path, draw: int) -> None:
    random_ = random.Random(draw)
    lines = RUN.splitlines(keepends=True)
    must = ["model_params:27333833\n", next(line for line in lines if "sliding" in line)]
    recap = [line for line in lines if line in must or (random_.random() < 0.6 and "loader" not in line)]
    if draw % 2:
        random_.shuffle(recap)
    (run,) = imported(tmp_path / "x", {"train.log": RUN + "=== RESULTS ===\n" + "".join(recap)}).runs
    assert (run.state, run.value("val_bpb"), run.seed) == ("ok", 1.3701, SEED)
    assert run.value("total_bytes") == 15_876_912 and run.faults == []


@pytest.mark.parametrize(
    ("old", "new"),
    [("val_bpb:1.3701", "val_bpb:1.3698"), ("15876912", "15876913"), (f"seed:{SEED}", "seed:7"), ("599132", "599133")],
)
def test_a_second_run_is_no_recap(tmp_path: Path, old: str, new: str) -> None:
    runs = imported(tmp_path / "x", {"train.log": RUN + "=== RESULTS ===\n" + RUN.replace(old, new)}).runs
    assert len(runs) == 2


def test_a_run_that_broke_off_at_its_first_validation_is_no_recap(tmp_path: Path) -> None:
    first = "step:0/20000 val_loss:6.9300 val_bpb:4.1043 train_time:0ms step_avg:0.01ms\n"
    head, at, tail = RUN.partition("step:5922")
    texts = [head + first + at + tail, head + first + "Traceback (most recent call last):\n"]
    runs = imported(tmp_path / "x", {"train.log": "".join(texts)}).runs
    assert [run.state for run in runs] == ["ok", "crashed"]


def test_a_recap_may_tell_what_its_run_did_not(tmp_path: Path) -> None:
    text = RUN.replace("seed:42\n", "") + "=== RESULTS ===\nmodel_params:27333833\nseed:42\n" + RUN.splitlines()[-1]
    (run,) = imported(tmp_path / "x", {"train.log": text}).runs
    assert (run.seed, run.value("model_params"), run.value("steps")) == (42, 27333833, 5922)


@pytest.mark.parametrize(
    "tag", ["fp_ema", "fp_swa", "fp_raw", "fp32_ema", "float_average", "bf16_lawa", "ema", "swa_model", "fp"]
)
@pytest.mark.parametrize("order", ["raw first", "raw last", "alone"])
def test_a_score_of_floats_is_never_the_final_one(tmp_path: Path, tag: str, order: str) -> None:
    per_bit = math.log(2) * VALIDATION_BYTES / TOKENS
    scores = {tag: 2.8059, "fp_model": 1.9228}
    average, raw = (f"final_{name} val_loss:{bpb * per_bit:.4f} val_bpb:{bpb}\n" for name, bpb in scores.items())
    before = {"raw first": raw + average, "raw last": average + raw, "alone": average}[order]
    text = log(SEED, 1.97605225, pre=1.9228)
    head, at, tail = text.partition("Serialized model:")
    found = imported(tmp_path / "x", {"train.log": head + before + at + tail}, {"val_bpb": 1.97605225})
    (run,) = found.runs
    assert (run.value("val_bpb"), run.value("post_quant_bpb")) == (1.97605225, 1.97605225)
    assert run.figures["val_bpb"].source.endswith("(final_int8_zlib_roundtrip_exact)")
    # The average that is far above the artifact was not exported.
    assert faults(found) == [] and run.value("pre_quant_bpb") == 1.9228


QUANTIZED = "diagnostic quantized val_loss:2.3500 val_bpb:1.21500000\n"
MIXTURE = "ppm_mix bytes=151080000 mix_bpb=1.101534 ppm_only=2.076814 nn_only=1.172497\n"
ADAPTED = """ttt_sliding:done val_loss=1.930000 val_bpb=1.183004 elapsed=283.9s
legal_ttt val_loss:1.9300 val_bpb:1.1830 eval_time:284398ms
slot_sliding:done val_loss=1.900000 val_bpb=1.170002 elapsed=289.8s
slot val_loss:1.9000 val_bpb:1.1700 eval_time:290010ms
"""
AVERAGE = "DIAGNOSTIC post_{} val_loss:1.9329 val_bpb:1.1948 eval_time:1967ms\n"


@pytest.mark.parametrize("word", ["no_ttt", "without_ttt", "pre_ttt", "before_ttt", "non_ttt"])
@pytest.mark.parametrize("draw", range(3))
def test_a_score_without_adaptation_is_not_the_adapted_one(tmp_path: Path, word: str, draw: int) -> None:
    text = log(SEED, 1.2) + QUANTIZED + "quantized_ttt val_loss:1.97 val_bpb:1.18000000 eval_time:30000ms\n"
    key = ["diagnostic_quantized_{}_val_bpb", "quantized_{}_bpb", "{}_val_bpb"][draw].format(word)
    claims = {"val_bpb": 1.18, "seed_results": {str(SEED): {"val_bpb": 1.18, key: 1.215}}}
    assert not [f for f in accusations(audited(tmp_path / "x", {"train.log": text}, claims)) if word in f]


@pytest.mark.parametrize("name", ["average", "avg", "averaging", "averaged", "ema", "swa"])
def test_the_score_of_averaged_weights_is_one_before_quantization(tmp_path: Path, name: str) -> None:
    head, at, tail = log(SEED, 1.2, pre=1.1950).partition("Serialized model:")
    logs = {"train.log": head + AVERAGE.format(name) + at + tail}
    for claimed, is_told in ((1.1948, False), (1.1950, False), (1.1939, True)):
        found = audited(tmp_path / "x", logs, {"val_bpb": 1.2, "pre_quant_val_bpb": claimed})
        assert any("pre_quant" in fault for fault in accusations(found)) is is_told, accusations(found)


def test_a_score_before_quantization_may_stand_in_the_log_of_the_training(tmp_path: Path) -> None:
    training = "seed:42\nstep:3500/3500 val_bpb:1.2146 elapsed:437s\nFINAL val_bpb: 1.2146\n"
    logs = {"train_seed42.log": training, "eval_seed42.log": "seed:42\nfinal_int6_roundtrip val_bpb:1.18540000\n"}
    for claimed, is_told in ((1.2146, False), (1.2246, True)):
        found = audited(tmp_path / "x", logs, {"val_bpb": 1.1854, "seeds": [42], "pre_quant_val_bpb": claimed})
        assert any("pre_quant" in fault for fault in accusations(found)) is is_told, accusations(found)


@pytest.mark.parametrize(("value", "is_told"), [("1.172497", False), ("1.101534", False), ("1.172597", True)])
def test_every_part_of_a_mixture_that_the_log_prints_may_stand_in_a_table(
    tmp_path: Path, value: str, is_told: bool
) -> None:
    readme = f"| seed | mix_bpb | nn_only |\n|---|---|---|\n| {SEED} | 1.101534 | {value} |\n"
    found = audited(tmp_path / "x", {"train.log": log(SEED) + MIXTURE}, {"val_bpb": 1.101534}, readme)
    assert any("README" in fault for fault in accusations(found)) is is_told, accusations(found)


@pytest.mark.parametrize(("seconds", "is_told"), [(574.4, False), (290.0, False), (284.4, False), (431.0, True)])
def test_seconds_of_scoring_may_be_those_of_the_last_scores_together(
    tmp_path: Path, seconds: float, is_told: bool
) -> None:
    claims = {"val_bpb": 1.17, "seed_results": {str(SEED): {"val_bpb": 1.17, "eval_time_seconds": seconds}}}
    found = accusations(audited(tmp_path / "x", {"train.log": log(SEED) + ADAPTED}, claims))
    assert any("eval_time" in fault for fault in found) is is_told, found


@pytest.mark.parametrize("key", ["train_steps_mean", "steps_mean", "pre_quant_val_bpb_mean"])
@pytest.mark.parametrize(("seeds", "is_told"), [([42, 1, 2], False), ([42], True), ([42, 9], False)])
def test_a_mean_of_seeds_without_logs_is_not_called_untrue(
    tmp_path: Path, key: str, seeds: list[int], is_told: bool
) -> None:
    value = 10_070 if "steps" in key else 1.1034
    found = audited(tmp_path / "x", {"train.log": log(SEED)}, {"val_bpb": 1.2, "seeds": seeds, key: value})
    assert any(key in fault for fault in accusations(found)) is is_told, accusations(found)


def test_a_number_of_shards_is_a_question_and_no_breach(tmp_path: Path) -> None:
    found = audited(tmp_path / "x", {"train.log": log(SEED, shards=1499)}, {"val_bpb": 1.2})
    assert not any("shards" in fault for fault in accusations(found))
    assert any("1,499 train shards" in text and text.endswith("?") for text in found.look_at), found.look_at


def test_the_score_that_counts_has_a_column(tmp_path: Path) -> None:
    text = log(SEED, 1.2).replace("final_int8_zlib_roundtrip", "EVAL RESULT")
    imported(tmp_path / "x", {"train.log": text.replace("_exact", "")})
    shown = table(entries_of([record(found) for found in import_folders([tmp_path / "x"])]), 160)
    header, row = (line.split() for line in (shown.splitlines()[1], shown.splitlines()[-1]))
    assert "1.2000" in row and header.index("final") == header.index("ttt") + 1, shown
