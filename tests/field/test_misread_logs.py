"""Logs that are easily misread: echoed source, comments, progress, several starts of one run, copies, other texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from golf.field.folder_audit import audit
from golf.field.folder_reader import ForeignFolder
from golf.field.foreign_run import ForeignRun
from golf.field.import_store import import_folders, record
from golf.field.log_lines import ScoreLine, SizeLine, StepLine, StopLine, read_line
from golf.field.submission_json import meaning
from golf.lab.report.imported_rows import rows_of_record
from golf.settings.composition import rules_named
from tests.field.folders import write
from tests.field.imports import faults, imported, log
from tests.support import ROOT

HEADER = "=" * 100 + "\nHyperparameters:\n  eval_stride: 64\n  seed: 42\n" + "=" * 100 + "\n"
SCRIPT = """import os
class Hyperparameters():
    seed = int(os.environ.get("SEED", 1337))
def main():
    log0(
        f"final_int8_zlib_roundtrip val_loss:{x:.4f} val_bpb:{val_bpb:.6f} "
    )
"""
RULE = "=" * 100 + "\n"
UNSEEDED = log().replace("seed:7\n", "")
INSTRUCTIVE = ROOT.parent / "shared" / "logs" / "instructive"


def only_run(found: ForeignFolder) -> ForeignRun:
    (run,) = found.runs
    return run


def test_settings_before_an_echoed_script_are_kept(tmp_path: Path) -> None:
    run = only_run(imported(tmp_path / "x", {"train.log": HEADER + SCRIPT + RULE + UNSEEDED}))
    assert run.count("seed") == 42 and run.count("eval_stride") == 64 and run.value("val_bpb") == 1.2
    assert run.figures["seed"].source == "train.log:4"


def test_a_start_after_a_crash_has_its_own_settings(tmp_path: Path) -> None:
    step = "step:{0}/20000 train_loss:3.0 train_time:{0}ms step_avg:1.00ms\n".format
    crashed = HEADER + SCRIPT + RULE + step(500) + "Traceback (most recent call last):\nRuntimeError: NCCL error\n"
    again = HEADER.replace("seed: 42", "seed: 43") + SCRIPT + RULE + step(1) + UNSEEDED
    first, second = imported(tmp_path / "x", {"train.log": crashed + again}).runs
    assert (first.state, first.count("seed"), first.count("steps")) == ("crashed", 42, 500)
    assert (second.state, second.count("seed"), second.count("steps")) == ("ok", 43, 13_000)


def test_settings_survive_sample_output_in_the_documentation_of_the_script(tmp_path: Path) -> None:
    sample = '"""\nIt prints:\nstep:1/2 val_loss:2.0 val_bpb:1.0 train_time:1ms step_avg:1.0ms\nseed:9\n"""\n'
    run = only_run(imported(tmp_path / "x", {"train.log": HEADER + sample + SCRIPT + RULE + UNSEEDED}))
    assert run.count("seed") == 42 and run.count("steps") == 13_000 and run.value("val_bpb") == 1.2


def test_documentation_of_a_function_gives_no_steps(tmp_path: Path) -> None:
    inner = 'def show():\n    """Print\n    step:99999/99999 train_loss:1.0 train_time:1ms step_avg:1.0ms\n    """\n'
    run = only_run(imported(tmp_path / "x", {"train.log": HEADER + SCRIPT + inner + RULE + UNSEEDED}))
    assert run.count("steps") == 13_000 and run.count("seed") == 42


def test_a_script_after_a_run_gives_no_scores(tmp_path: Path) -> None:
    second = log(8, 1.3, steps=12_000, seconds=599.0)
    found = imported(tmp_path / "x", {"train.log": log(7) + SCRIPT + RULE + second})
    assert [(r.count("seed"), r.value("val_bpb")) for r in found.runs] == [(7, 1.2), (8, 1.3)]


SOURCE_WITH_SCORES = (
    '        f"final_int6_roundtrip val_loss:{q_val_loss:.4f} val_bpb:{q_val_bpb:.4f} "',
    "val_bpb={val_bpb:.6f}",
    '    log0(f"final_ngram_exact val_bpb:{sw_val_bpb:8.6f}")',
    'print("final_int8_zlib_roundtrip_exact val_bpb:1.1")',
    "# final_int8_zlib_roundtrip_exact val_bpb:1.1",
)


@pytest.mark.parametrize("line", SOURCE_WITH_SCORES)
def test_source_is_no_score(tmp_path: Path, line: str) -> None:
    assert not isinstance(read_line(line), ScoreLine)
    found = imported(tmp_path / "x", {"train.log": log() + line + "\n"})
    assert only_run(found).value("val_bpb") == 1.2 and faults(found) == []


def test_json_is_no_format_code() -> None:
    line = read_line('final_sliding {"val_loss": 1.9, "val_bpb": 1.1234}')
    assert isinstance(line, ScoreLine) and line.val_bpb == 1.1234


@pytest.mark.parametrize("score", ["0.0", "-1.0", "20.5"])
def test_impossible_scores_are_refused(tmp_path: Path, score: str) -> None:
    found = imported(tmp_path / "x", {"train.log": log() + f"final_ngram_exact val_bpb:{score}\n"})
    assert only_run(found).value("val_bpb") == 1.2
    assert faults(found) == [] and found.examples == [f"train.log:12: final_ngram_exact val_bpb:{score}"]


@pytest.mark.parametrize("score", ["0.0235", "0.29"])
def test_scores_that_no_model_has_are_kept_and_marked(tmp_path: Path, score: str) -> None:
    claims = {"val_bpb": float(score), "seeds": [7], "seed_results": {"7": {"val_bpb": float(score)}}}
    found = imported(tmp_path / "x", {"train.log": log() + f"final_ngram_exact val_bpb:{score}\n"}, claims)
    run = only_run(found)
    assert run.value("val_bpb") == float(score) and run.state == "implausible" and run.reason.startswith(score)
    assert faults(found) == [] and not rows_of_record(record(found))[0].counts


def test_negative_times_are_refused() -> None:
    line = read_line("step:5/20 train_loss:2.5 train_time:-100ms step_avg:20.00ms")
    assert isinstance(line, StepLine) and line.seconds is None


PROGRESS = (
    "  ttt epoch=5/5 [ 84.8%] lr=0.000002 loss=1.7246 bpb=1.010127",
    "  ttt [###.......]  42.4% chunk 401/947 bpb=1.117622 ETA=1306s",
    "  ttt_stream windows:121088/969088 scored_tokens:7751616 lr:0.0005 bpb=1.126688 time=483.4s",
)


@pytest.mark.parametrize("line", PROGRESS)
def test_progress_is_no_score(tmp_path: Path, line: str) -> None:
    run = only_run(imported(tmp_path / "x", {"train.log": log() + f"{line}\n" * 3}))
    assert run.value("val_bpb") == 1.2 and len(run.scores) == 1


def test_the_last_of_many_scores_counts(tmp_path: Path) -> None:
    sweep = "".join(f"ttt_lr{i}_exact val_bpb:1.1{i:07d}\n" for i in range(900))
    run = only_run(imported(tmp_path / "x", {"train.log": log() + sweep + "legal_ttt_exact val_bpb:1.15000000\n"}))
    assert run.value("val_bpb") == 1.15 and run.value("post_quant_bpb") == 1.2


def test_headings_are_no_source(tmp_path: Path) -> None:
    first, rest = log().split("seed:7\n")
    text = f"# Partial log of seed 1, seed: 1\n\n{first}seed:7\n# --- training ---\n{rest}".replace(
        "Serialized model: ", "# --- export ---\nSerialized model: "
    )
    run = only_run(imported(tmp_path / "x", {"train.log": text + "# Connection closed.\n"}))
    assert (run.count("seed"), run.count("steps"), run.value("val_bpb")) == (7, 13_000, 1.2)
    assert run.count("total_bytes") == 15_850_000


def test_an_adapted_score_counts_after_a_sliding_one_that_looks_like_a_mixture(tmp_path: Path) -> None:
    text = log(bpb=2.25, pre=1.09) + "final_int6_sliding_window_exact val_bpb:2.17447154\nlegal_ttt val_bpb:1.3262136\n"
    found = imported(tmp_path / "x", {"train.log": text})
    assert only_run(found).value("val_bpb") == 1.3262136
    assert any("more than a sliding window gives" in fault for fault in faults(found))


def test_the_compatible_tag_is_flat_where_it_is_near_the_flat_score(tmp_path: Path) -> None:
    text = log(tag="base_int8", bpb=1.1976) + "final_int8_zlib_roundtrip_exact val_bpb:1.19179616\n"
    assert only_run(imported(tmp_path / "x", {"train.log": text})).value("val_bpb") == 1.19179616


def test_a_mixture_before_quantization_is_not_the_artifacts(tmp_path: Path) -> None:
    mixture = "pre_quant_sliding_window_exact val_bpb:0.90000000\nfinal_ngram_exact val_bpb:0.90000000\n"
    text = log().replace("Serialized model: ", mixture + "Serialized model: ")
    assert only_run(imported(tmp_path / "x", {"train.log": text})).value("val_bpb") == 1.2


def test_a_seed_that_only_the_name_tells_has_a_log(tmp_path: Path) -> None:
    logs = {f"train_seed{s}.log": log(s, 1.2 + s / 1e3).replace(f"seed:{s}\n", "") for s in (1, 2)}
    per_seed = {str(s): {"val_bpb": 1.2 + s / 1e3} for s in (1, 2)}
    assert faults(imported(tmp_path / "x", logs, {"val_bpb": 1.2015, "seed_results": per_seed})) == []


def test_a_claim_before_adaptation_is_no_adapted_score() -> None:
    assert meaning("ttt_val_bpb") == meaning("val_bpb_post_ttt") == "ttt_bpb"
    assert meaning("pre_ttt_val_bpb") is None and meaning("val_bpb_pre_ttt") is None


def test_an_evaluation_of_its_own_belongs_to_the_run_before(tmp_path: Path) -> None:
    header = log().split("step:")[0]
    text = log() + header + "quantized_ttt_phased val_loss:1.9 val_bpb:1.15906444 eval_time:367176ms\n"
    run = only_run(imported(tmp_path / "x", {"train.log": text}))
    assert (run.value("val_bpb"), run.count("steps"), run.count("total_bytes")) == (1.15906444, 13_000, 15_850_000)
    other = header.replace("seed:7", "seed:8") + "quantized_ttt_phased val_loss:1.9 val_bpb:1.15906444\n"
    assert len(imported(tmp_path / "y", {"train.log": log() + other}).runs) == 2


def test_step_times_are_not_those_of_another_step(tmp_path: Path) -> None:
    text = (
        "step:500/20000 train_loss:2.6 train_time:17960ms step_avg:35.92ms\nstep:12000/20000 val_loss:2.3 val_bpb:1.4\n"
    )
    run = only_run(imported(tmp_path / "x", {"train.log": text}))
    assert run.value("step_ms") == 35.92 and run.value("train_seconds") is None
    text = "step:996/2000 train_loss:2.6 train_time:99600ms step_avg:100.00ms\n"
    text += "stopping_early: wallclock_cap train_time:0ms step:1000/2000\n"
    assert only_run(imported(tmp_path / "y", {"train.log": text})).value("step_ms") == 100.0


def test_a_page_that_quotes_scores_is_no_run(tmp_path: Path) -> None:
    page = "We tried a lot.\nIt was good, said nobody.\nThe tail is long.\nfinal_int6_roundtrip val_bpb: 1.1234\n"
    found = imported(tmp_path / "x", {"PR_BODY.txt": page, "train.log": log()})
    assert [run.files for run in found.runs] == [["train.log"]]
    assert found.skipped == {"PR_BODY.txt": "quotes scores, but is no log"}


LINES = {
    "step    10/5120 | loss 8.1915 | lr 0.000475 | tok/s 4,637,135 | elapsed 0m01.13s": StepLine(
        10, 5120, 1.13, train_loss=8.1915
    ),
    "step 5120/5120 | loss 1.9868 | elapsed 1h 9m39.58s": StepLine(5120, 5120, 4179.58, train_loss=1.9868),
    "iter 250: loss 2.1234, time 89.50ms, mfu 12.30%": StepLine(250, None, train_loss=2.1234),
    "step 250: train loss 2.5000, val loss 2.6000": StepLine(250, None, train_loss=2.5, val_loss=2.6),
    "run2-b: step:5/20 train_loss:2.5 train_time:100ms": StepLine(5, 20, 0.1, train_loss=2.5),
    "Training complete in 590s (1856 steps)": StopLine("complete", 590.0, 1856),
    "[EVAL]  val_bpb  (raw):   1.05003120": ScoreLine("[EVAL] raw", 1.0500312, "1.05003120"),
    "Artifact: 15,305,698 bytes (14.60 MB)": SizeLine((("artifact", "", 15_305_698),)),
    "[QUANT] ZLIB compressed size:  15,868,520 bytes": SizeLine((("artifact", "ZLIB", 15_868_520),)),
    "[QUANT] Code snapshot size:    52,814 bytes": SizeLine((("code", "", 52_814),)),
    "  INT4+fp8+brotli: 15.42MB model + 0.077MB code = 15.50/16.00MB FITS": SizeLine(
        (("artifact", "INT4+fp8+brotli", 15_420_000), ("code", "", 77_000)), unit=10_000
    ),
    "step  1800/9999 | loss 2.1075 | lr_mul 1.0000 | 3.12 steps/s | 576s": StepLine(1800, 9999, train_loss=2.1075),
    "Stopping early at step 1856 (wallclock limit)": StopLine("wallclock limit", None, 1856),
    "Quantized BPB (no XSA): 1.027811": ScoreLine("Quantized", 1.027811, "1.027811"),
    "final_int8_zlib_roundtrip_exact val_bpb 1.0500312": ScoreLine(
        "final_int8_zlib_roundtrip_exact", 1.0500312, "1.0500312"
    ),
}


@pytest.mark.parametrize("text", LINES)
def test_rare_forms_of_lines(text: str) -> None:
    assert read_line(text) == LINES[text]


RESULTS = {
    "[EVAL RESULT] BPB: 1.2345 | tokens_processed=100": 1.2345,
    "  VARIATIONAL BPB: 1.1625": 1.1625,
    "RESULT val_bpb=1.2345": 1.2345,
    "Submission: val_bpb = 1.0123": 1.0123,
    "  Pure AR BPB: 1.4434  (12s)": 1.4434,
    "RESULT: mode=standard val_loss=2.0 val_bpb=1.2": 1.2,
    "Best val_bpb: 1.2345": None,  # of the validations in training
    "lambda=0.3 bpb=1.2345": None,
    "  PR #888 MDLM:    1.1465": None,
}


@pytest.mark.parametrize("line", RESULTS)
def test_a_last_word_counts_where_there_is_no_other_score(tmp_path: Path, line: str) -> None:
    training = "step:1000/1000 train_loss:2.0 train_time:100ms step_avg:0.10ms\n"
    run = only_run(imported(tmp_path / "x", {"train.log": f"{training}{line}\n"}))
    assert run.value("val_bpb") == RESULTS[line]
    if RESULTS[line]:
        assert run.texts["how"].startswith("not told (")
    assert only_run(imported(tmp_path / "y", {"train.log": f"{log()}{line}\n"})).value("val_bpb") == 1.2


CUT = (
    "l_bpb:.4f} val_bpb:.6f} tokens",
    "log0(f\"final_int6_roundtrip_exact val_bpb:{a_very_long_name.of_an_object['and a key that goes on and on'] * "
    'and_a_factor_that_is_longer_still + 1:.6f}")',
    "final_int8_zlib_roundtrip_exact val_bpb:.6",
    "final_int8_zlib_roundtrip_exact val_bpb:%.6f",
    "final_int8_zlib_roundtrip_exact val_bpb:{:.6f}",
    "final_int8_zlib_roundtrip_exact val_bpb:{0:>9.6f} val_loss:{1:.4f}",
    "final_int8_zlib_roundtrip_exact val_bpb:1.23456f",
)


@pytest.mark.parametrize("line", CUT)
def test_formatting_code_is_never_a_number(tmp_path: Path, line: str) -> None:
    found = imported(tmp_path / "x", {"train.log": f"{log()}{line}\n"})
    assert only_run(found).value("val_bpb") == 1.2 and len(only_run(found).scores) == 1


def test_sizes_in_megabytes_accuse_nobody(tmp_path: Path) -> None:
    size = "  INT4+fp8+brotli: 15.92MB model + 0.077MB code = 16.00/16.00MB FITS\n"
    text = "".join(line for line in log().splitlines(keepends=True) if "bytes" not in line.lower()) + size
    found = imported(tmp_path / "x", {"train.log": text}, {"val_bpb": 1.2, "bytes_total": 15_993_211})
    run = only_run(found)
    assert (run.value("artifact_bytes"), run.value("total_bytes"), run.state) == (15_920_000, 15_997_000, "ok")
    assert faults(found) == []


def test_copies_are_one_run_in_imports(tmp_path: Path) -> None:
    logs = {"train.log": log(7), "train_seed7.log": log(7), "train_seed8.log": log(8, 1.202)}
    mean = {"val_bpb": 1.201, "seeds": [7, 8]}
    found = imported(tmp_path / "x", logs, mean)
    assert [run.files[0] for run in found.runs] == ["train_seed7.log", "train_seed8.log"]
    assert faults(found) == ["x/train_seed7, x/train are copies of one run"]
    coarse = "step:20/20 val_loss:2.0 val_bpb:1.3 train_time:100ms\nfinal val_loss:2.0 val_bpb:1.3\n"
    assert len(imported(tmp_path / "y", {"a.log": coarse, "b.log": coarse}).runs) == 1


def test_one_run_twice_in_a_file_is_one_run(tmp_path: Path) -> None:
    found = imported(tmp_path / "x", {"train.log": log() + SCRIPT + RULE + log()})
    assert only_run(found).name == "x/train" and any("are copies of one run" in fault for fault in faults(found))


def test_a_copy_does_not_end_the_audit_of_claims(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "train.log").write_bytes((folder / "train_seed7.log").read_bytes())
    found = audit(folder, None, rules_named("strict"))
    assert found.faults == []
    assert "train_seed7.log, train.log are copies of one run: they count as one" in found.look_at
    assert not any("not every seed" in line for line in found.unchecked)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "FineWeb validation, 151.08 MB"),
        ({"loss": 2.03145, "tokens": 63_779_840}, "FineWeb validation, older export, 155.77 MB"),
        ({"tokens": 1_000_000}, "other"),
        ({"tokens": "some"}, "unknown"),
    ],
)
def test_the_scored_text_is_in_the_record(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    values = record(imported(tmp_path / "x", {"train.log": log(**changes)}))
    assert values["runs"][0]["texts"]["scored_text"] == text
    del values["runs"][0]["texts"]["scored_text"]
    assert rows_of_record(values)[0].val_bpb == 1.2


RIGHT: dict[str, dict[str, float | None]] = {  # of the last run of each public log that was read wrongly once
    "pr1994_train_seed1337": {"steps": 4380, "seed": 1337, "val_bpb": 1.30040229, "total_bytes": 12074422},
    "pr480_moe_train_partial": {"steps": 2000, "step_ms": 88.12, "val_bpb": None},
    "pr2009_train": {"steps": 5120, "val_bpb": 1.0500312, "total_bytes": 15921334},
    "pr1632_train_seed42": {"steps": 1856, "pre_quant_bpb": 1.018499, "val_bpb": 1.027811},
    "pr1232_train": {"val_bpb": 1.092786},
    "pr710_train": {"steps": 6955, "val_bpb": 1.12124283},
    "pr1114_train_seed42_detail": {"steps": 1114, "val_bpb": 3.65647198},
    "pr662_train_seed1337": {"val_bpb": 1.1208232, "ttt_bpb": 1.1208232},
    "pr484_train_seed42": {"val_bpb": 1.01055647, "pre_quant_bpb": 1.1737},
    "pr1502_ttt_from_checkpoint": {"val_bpb": None},
    "pr804_seed314": {"val_bpb": 2.58368013},
    "pr1733_train_seed42": {"val_bpb": 1.3262136, "seed": 42, "steps": 4606},
    "pr1239_train_seed314": {"val_bpb": 1.59179616},
    "pr1925_train_seed42_ttt_n1_lora8e5": {"val_bpb": 1.05906444, "steps": 4994, "total_bytes": 15896241, "seed": 42},
    "pr982_train_seed2024": {"step_ms": 35.92, "val_bpb": 0.06373546},
    "main_2026-04-01_Vocab4096_MLPMult4_WD085_train_seed42": {"seed": 42, "steps": 5967, "total_bytes": 15915268},
    "main_2026-03-22_11L_EMA_GPTQ-lite_warmdown3500_QAT015_1.1233_train": {"steps": 7096, "total_bytes": 15555017},
}
LOW = {  # scores of n-grams, as printed; any other low number would be source or progress
    "pr1114_train_seed42_detail": {0.02351826},
    "pr982_train_seed2024": {0.063735, 0.06373546},
}
SEVERAL = {"pr1232_train": 6, "pr1114_train_seed42_detail": 5}  # runs in one file; all others have one


@pytest.mark.parametrize("name", RIGHT)
def test_public_logs_that_were_read_wrongly(name: str) -> None:
    if not INSTRUCTIVE.is_dir():
        pytest.skip("needs ../shared/logs/instructive beside this checkout")
    (found,) = import_folders([INSTRUCTIVE / f"{name}.log"])
    assert len(found.runs) == SEVERAL.get(name, 1)
    assert {key: found.runs[-1].value(key) for key in RIGHT[name]} == RIGHT[name]
    low = {score.val_bpb for run in found.runs for score in run.scores if score.val_bpb < 0.7}
    assert low == LOW.get(name, set())
