"""Imports end to end: the command, what it keeps, rows and their way into verdicts, and Golf's own logs."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from golf.field.import_store import import_folders
from golf.lab.corpora.own_text import OwnDataset
from golf.lab.report.study import read_study
from golf.lab.report.verdicts import judge
from golf.run.result import read_result
from golf.settings.config import RulesConfig
from tests.field.imports import imported_rows, log
from tests.support import ROOT, golf_main, only_run, tiny_overrides

FIXTURES = Path(__file__).parent / "fixtures"


def import_runs(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "golf", "import", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=900)
    assert "Traceback" not in done.stderr
    return done


def test_a_folder_is_imported_shown_and_kept(runs: Path) -> None:
    done = import_runs(FIXTURES)
    assert done.returncode == 0, done.stderr
    assert "m_compatible" in done.stdout and "1.1227" in done.stdout and "15,876,510" in done.stdout
    assert "1 line not understood, e.g. train.log:1: Building PyTorch model..." in done.stdout
    rows = {row.name: row for row in imported_rows(runs)}
    row = rows["m_compatible/train_seed42"]
    assert (row.source, row.state, row.seed, row.counts) == ("imported", "ok", 42, True)
    assert (row.ttt_bpb, row.val_bpb, row.total_bytes, row.cap_bytes) == (1.1200138, 1.1200138, 15876510, 16_000_000)
    assert row.bytes_per_token == pytest.approx(2.43593, rel=1e-4)
    assert any("repeats the sliding score" in fault for fault in row.faults)
    assert not rows["f_crashed/train_seed5"].counts and not rows["n_over/train_seed3"].counts
    assert not list(runs.rglob("*.pkl")) and len(list((runs / "imported").glob("*/import.json"))) == 14


def test_importing_again_replaces_and_another_folder_of_that_name_does_not(tmp_path: Path, runs: Path) -> None:
    for parent in ("one", "two"):
        folder = tmp_path / parent / "mine"
        folder.mkdir(parents=True)
        (folder / "train.log").write_text((FIXTURES / "g_lora/train_v0.txt").read_text())
        assert import_runs(folder).returncode == 0 and import_runs(folder).returncode == 0
    assert len(list((runs / "imported").iterdir())) == len(imported_rows(runs)) == 2


def test_files_of_one_folder_are_one_record(tmp_path: Path, runs: Path) -> None:
    files = [tmp_path / f"train_seed{seed}.log" for seed in (1, 2, 3)]
    for seed, file in enumerate(files, start=1):
        file.write_text(log(seed=seed, bpb=1.2 + seed / 1000))
    assert import_runs(os.path.relpath(files[0], ROOT), *files).returncode == 0
    assert sorted(row.seed or 0 for row in imported_rows(runs)) == [1, 2, 3]
    assert len(list((runs / "imported").iterdir())) == len({row.variant for row in imported_rows(runs)}) == 1


def test_csv_and_json_go_to_standard_output(runs: Path) -> None:
    done = import_runs(FIXTURES / "a_standard", "--csv", "--dry-run")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["seed"], row["steps"]) for row in rows] == [("1337", "13750"), ("7", "13702")]
    values = json.loads(import_runs(FIXTURES / "a_standard", "--json", "--dry-run").stdout)
    assert (
        values[0]["runs"][0]["figures"]["post_quant_bpb"]["source"] == "train.log:27 (final_int8_zlib_roundtrip_exact)"
    )
    assert not runs.exists()


def test_every_number_is_explained(runs: Path) -> None:
    import_runs(FIXTURES / "b_phased")
    done = import_runs("--explain", "b_phased")  # without a path: of what was imported before
    assert "total_bytes" in done.stdout and "15996664" in done.stdout and "train_seed0.log:26" in done.stdout
    assert import_runs("--explain", "nothing").returncode == 2


@pytest.mark.parametrize("name", ["missing", "empty", "binary.log", "prose.txt"])
def test_what_holds_no_run_is_one_sentence(tmp_path: Path, runs: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "binary.log").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "prose.txt").write_text("Once upon a time.\n" * 9)
    done = import_runs(tmp_path / name)
    assert done.returncode == 2 and done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("error: ")


def test_imported_runs_are_variants_of_a_report_and_references_of_verdicts(runs: Path) -> None:
    import_runs(FIXTURES)
    study = read_study(["a_standard", str(runs / "imported/g_lora")], reference="g_lora/train_v0")
    assert [(v.label, len(v.rows)) for v in study.variants] == [("a_standard", 2), ("g_lora/train_v0", 1)]
    assert study.reference is not None and study.reference.label == "g_lora/train_v0"
    (verdict,) = judge(study.variants, study.reference, RulesConfig(), score="post_quant", sigma=0.0007).values()
    assert verdict.difference_bpb == pytest.approx((1.2270971 + 1.22834084) / 2 - 1.2283713)
    assert verdict.kind == "not distinguishable"
    with_other_ways = judge(study.variants, study.reference, RulesConfig(), sigma=0.0007)
    assert "not comparable" in next(iter(with_other_ways.values())).reason


def test_a_record_that_was_spoilt_is_a_row_that_says_so(runs: Path) -> None:
    import_runs(FIXTURES / "a_standard")
    (path,) = runs.glob("imported/*/import.json")
    path.write_text(path.read_text()[:-40])
    (row,) = imported_rows(runs)
    assert row.state == "unreadable" and "import it again" in row.reason and not row.counts


def test_own_logs_can_be_imported(tiny: OwnDataset, runs: Path) -> None:
    done = golf_main(*tiny_overrides(tiny), "eval.stride=16", "seed=5")
    assert done.returncode == 0, done.stderr
    folder = only_run(runs)
    result = read_result(folder / "result.json")
    ((run,),) = (found.runs for found in import_folders([folder / "train.log"]))
    assert run.count("seed") == 5 and run.count("steps") == result.steps and run.state == "ok"
    for name in ("artifact_bytes", "code_bytes", "total_bytes"):
        assert run.count(name) == getattr(result, name)
    scores = {"pre_quant": result.pre_quant, "post_quant": result.post_quant, "sliding": result.post_quant_sliding}
    for name, score in scores.items():
        assert score is not None
        assert run.value(f"{name}_bpb") == pytest.approx(score.val_bpb, abs=6e-5 if name == "pre_quant" else 1e-8)
    assert run.texts["how"] == result.post_quant_sliding.how  # type: ignore[union-attr]
    assert run.value("train_seconds") == pytest.approx(result.train_seconds, abs=1e-3)
