"""Public folders that are easily judged wrongly: mixtures, recaps, scores no model has, seeds of something else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from golf.field.folder_audit import audit
from golf.settings.composition import rules_named
from tests.field.imports import faults, imported, log
from tests.support import ROOT

FOLDERS = ROOT.parent / "shared" / "logs" / "instructive_2"
# Every accusation but missing files and keys, each checked against the files.
ACCUSATIONS = {
    # 1.11127, 1.11089, 1.11069 and 1.11058 of online_best_agree make the claimed 1.11085863
    "pr1145": [],
    "pr1164": [],
    "pr1309": [],
    # model and raw code; the README has 1.1000 where the log has 1.10042475
    "pr1520": ["16,133,979 bytes in total", "16,134,845 bytes", "16,135,385 bytes", "seed 999 a score of 1.1000"],
    "pr1605": [],
    # logs of an evaluation alone: a table of ranks, each with its score
    "pr1823": [],
    # the claimed artifact_bytes are the model's, to the byte
    "pr1835": ["16,071,321 bytes in total", "16,071,265 bytes in total", "16,070,447 bytes in total"],
    # the mean of the losses before quantization is 2.333952
    "pr1885": ["val_loss 2.33395 is the loss before quantization: the artifact's is 2.353389"],
    "pr1558": ["at step 779 without", "at step 698 without", "at step 780 without", "1.4882 is nowhere in README.md"],
    # Scylla counts 159.5 MB of the text's 151.08
    "pr1274": ["159.51 MB of text", "159.52 MB of text", "159.51 MB of text", "159.52 MB of text", "159.51 MB of text"],
    "pr2010": ["16,076,471 bytes in total", "bytes_total 15,998,983 is 77,488 below", "bytes_code is 27,749"],
    "pr511": ["took 706.3 s", "took 706.1 s", "took 705.0 s"],
    # 1.1212 is the sliding score of seed 1337; before quantization the logs have 1.136 to 1.138
    "pr870": ["pre_quant_val_bpb is 1.1212, the logs say 1.13"],
    # the mean of 0.02800607, 0.02800485 and 0.02818651 is 0.02806581
    "pr925": ["there is no train log", "0.028073143 is not the mean of its own seeds' 0.028066"],
}
MISSING = re.compile(r"^there is no (README|train_gpt|submission)|has no (author|val_bpb)$")


@pytest.mark.parametrize("name", ACCUSATIONS)
def test_accusations_are_true_and_complete(name: str) -> None:
    if not FOLDERS.is_dir():
        pytest.skip("needs ../shared/logs/instructive_2 beside this checkout")
    (folder,) = FOLDERS.glob(f"{name}_*")
    found = audit(folder, None, rules_named("strict"))
    accusations = [fault for fault in found.faults if not MISSING.search(fault)]
    assert len(accusations) == len(ACCUSATIONS[name]), accusations
    assert all(part in fault for part, fault in zip(ACCUSATIONS[name], accusations, strict=True)), accusations


MIXTURES = {
    "ppm_native_submission_val_bpb: 0.992908": 0.992908,
    "ppm_mix bytes=10982035 mix_bpb=1.002519 ppm_only=2.380212 nn_only=1.080180": 1.002519,
    "final_int8_zlib_roundtrip_ppm_best boost_k:15.00 hits:63 val_bpb:1.19125711 delta_bpb:-0.001": 1.19125711,
    "online_best_agree_sliding_window_exact val_loss:1.87 val_bpb:1.19126660": 1.1912666,
    "sequence_matching_exact val_loss:1.88 val_bpb:1.19427476": 1.19427476,
}


@pytest.mark.parametrize("line", MIXTURES)
def test_the_score_of_a_mixture_is_the_final_one(tmp_path: Path, line: str) -> None:
    (run,) = imported(tmp_path / "x", {"train.log": log() + line + "\n"}).runs
    assert run.value("val_bpb") == MIXTURES[line] and run.texts["how"].startswith("adapted to the text")
    sweep = "ppm_sweep_result boost_k:50.00 hits:63 val_bpb:1.19151489 delta_bpb:-0.001\n"
    (run,) = imported(tmp_path / "y", {"train.log": log() + sweep + line + "\n"}).runs
    assert run.value("val_bpb") == MIXTURES[line]


def test_an_adapted_logit_bias_is_no_plain_sliding_window(tmp_path: Path) -> None:
    line = "final_int6_sliding_etlb val_loss:1.9 val_bpb:1.19 eval_time:90000ms\n"
    (run,) = imported(tmp_path / "x", {"train.log": log() + line}).runs
    assert run.bpb == 1.19 and "etlb" in run.texts["how"]


def test_a_score_that_training_goes_on_after_is_a_validation(tmp_path: Path) -> None:
    text = "".join(
        f"step {step} | loss 3.1 | lr 0.1 | 9s\n" + ("  BPB (EMA, stride=64): 0.9756\n" if step == 20 else "")
        for step in range(0, 50, 10)
    )
    claims = {"val_bpb": 1.4882, "seeds": [1], "seed_results": {"1": {"val_bpb": 0.9756}}}
    found = imported(tmp_path / "x", {"train_seed1.log": text + "Wall-clock limit reached at step 43.\n"}, claims)
    logged, claimed = found.runs
    assert (logged.state, logged.value("val_bpb"), logged.count("steps")) == ("unfinished", None, 43)
    assert claimed.faults == ["no log has a score that is read: this is what submission.json claims"]


def test_a_recap_belongs_to_its_run(tmp_path: Path) -> None:
    text = log(model=15_990_000)
    scores = [line for line in text.splitlines(keepends=True) if "val_bpb" in line]
    start = "step:0/20000 val_loss:9.0 val_bpb:3.9 train_time:0ms step_avg:0.01ms\n"
    recap = "[run] === val_bpb lines ===\n" + start + "".join(scores)
    (run,) = imported(tmp_path / "x", {"train.log": start + text + recap}).runs
    assert run.state == "over_bytes" and run.seed == 7


def test_a_copy_in_the_same_file_keeps_the_seed(tmp_path: Path) -> None:
    rule = "=" * 100 + "\n"
    found = imported(tmp_path / "x", {"train.log": log(3) + rule + log().replace("seed:7\n", "")})
    (run,) = found.runs
    assert run.seed == 3 and "copies of one run" in faults(found)[0]


def test_the_seed_of_a_part_is_not_that_of_the_run(tmp_path: Path) -> None:
    adapter = "train_adapter kind:none rank:8 params:0 lr:0.02 dist:rademacher seed:20260331\n"
    (run,) = imported(tmp_path / "x", {"train.log": adapter + log(1337)}).runs
    assert run.seed == 1337
    (run,) = imported(tmp_path / "y", {"train.log": "lr:0.1 seed:5\n" + log().replace("seed:7\n", "")}).runs
    assert run.seed == 5


@pytest.mark.parametrize(
    "claims",
    [
        {"val_bpb": 0.0},
        {"val_bpb": -1, "bytes_total": -1},
        {"val_bpb": 40.48},
        {"seeds": [42, 7], "artifact_size": {"estimated_total_bytes_by_seed": {"42": 15_992_220, "7": 15_993_245}}},
    ],
)
def test_placeholders_and_bytes_are_no_scores(tmp_path: Path, claims: dict) -> None:
    found = imported(tmp_path / "x", {}, claims)
    assert found.runs == [] and found.skipped == {"submission.json": "claims no score"}


def test_a_traceback_in_a_warning_is_no_crash(tmp_path: Path) -> None:
    warning = "torch._dynamo.convert_frame: [WARNING] Traceback (most recent call last):\n"
    text = warning + "Traceback (most recent call last):\n" + "".join(log().splitlines(keepends=True)[:5])
    (run,) = imported(tmp_path / "x", {"train.log": text}).runs
    assert run.state == "unfinished"


def test_a_mixture_is_a_question_for_a_reviewer(tmp_path: Path) -> None:
    line = "ppm_mix bytes=10982035 mix_bpb=1.002519 mode=binary\n"
    imported(tmp_path / "x", {"train_seed7.log": log() + line, "train_seed8.log": log(8, 1.21)})
    remarks = [text for text in audit(tmp_path / "x", None, rules_named("strict")).look_at if "seed7" in text]
    assert (
        remarks[0].startswith("train_seed7.log: ppm_mix") and "a way of scoring that reviewers look into" in remarks[0]
    )
    assert remarks[1:] == ["train_seed7.log: the mixture scored 10,982,035 of 151,080,000 bytes"]


def test_settings_that_the_script_does_not_read_are_named(tmp_path: Path) -> None:
    command = "SEED=1 TTT_MASK=no_qv \\\nOMP_NUM_THREADS=1 LR=2 torchrun --nproc_per_node=8 train_gpt.py RUN=1\n"
    imported(tmp_path / "x", {"train.log": log()}, {"val_bpb": 1.2}, f"```\n{command}```\n")
    (tmp_path / "x/train_gpt.py").write_text('import os\nseed = os.environ["SEED"]\nsettings = {"ttt_mask": 1}\n')
    remarks = [text for text in audit(tmp_path / "x", None, rules_named("strict")).look_at if "command sets" in text]
    assert remarks == []
    (tmp_path / "x/train_gpt.py").write_text('import os\nseed = os.environ["SEED"]\nlr = os.environ["LR"]\n')
    remarks = [text for text in audit(tmp_path / "x", None, rules_named("strict")).look_at if "command sets" in text]
    assert remarks == ["README.md's command sets TTT_MASK, which train_gpt.py does not read"]


@pytest.mark.parametrize(
    ("cell", "is_told"), [("~7100", False), ("**~7,100**", False), ("7100", True), ("~~7100~~", True)]
)
def test_a_rounded_number_of_steps_claims_its_digits_only(tmp_path: Path, cell: str, is_told: bool) -> None:
    readme = f"| seed | steps |\n|---|---|\n| 7 | {cell} |\n"
    found = imported(tmp_path / "x", {"train.log": log(steps=7103)}, readme=readme)
    assert any("number of steps" in fault for fault in found.faults) is is_told


def test_the_mean_of_the_listed_seeds_is_said_to_be_that(tmp_path: Path) -> None:
    scores = {str(seed): {"val_bpb": 1.06 + seed / 1000} for seed in range(1, 8)}
    for claimed, seeds, part in (
        (1.063, [1, 2, 3, 4, 5], "is of 5 of its 7 seeds: the mean of all is 1.064000"),
        (1.05, [1, 2, 3], "is not the mean of its own seeds' 1.064000"),
    ):
        found = imported(tmp_path / "x", {}, {"val_bpb": claimed, "seeds": seeds, "seed_results": scores})
        untrue = audit(tmp_path / "x", None, rules_named("strict")).untrue
        assert any(part in fault for fault in untrue), untrue
        assert all(run.faults[0].startswith("there is no log") for run in found.runs)
    scores = {str(seed): {"val_bpb": 1 + seed * 0.0123} for seed in range(1, 8)}
    claims = {"val_bpb": 1.0492, "val_bpb_std": 0.0246, "seed_results": scores}
    imported(tmp_path / "x", {}, claims)
    assert any("is the population's (7 in it)" in f for f in audit(tmp_path / "x", None, rules_named("strict")).untrue)
