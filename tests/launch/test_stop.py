"""`golf stop` ends a run on purpose, and no sweep that is repeated goes on with it until that is taken back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from golf.lab.corpora.own_text import OwnDataset
from golf.lab.report.study import read_study
from golf.launch.stop import stop_here
from golf.run.attempts import next_attempt
from golf.run.folder import RunFolder, create_run_folder, finished_run
from golf.run.identity import variant_id
from golf.run.result import read_result
from tests.lab.report.runs import write_lr_sweep
from tests.launch.test_processes import assert_nothing_is_left, endless_run, processes_of, wait_for
from tests.support import ROOT, compose, golf_command, golf_main, metrics, tiny_overrides


@pytest.mark.parametrize("nproc", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_run_of_its_own_command_is_stopped(tiny: OwnDataset, runs: Path, nproc: int) -> None:
    with endless_run(tiny, runs, nproc) as (process, folder):
        done = golf_command("stop", str(folder))
        assert done.returncode == 0 and f"{folder}: stopped" in done.stdout and "--undo" in done.stdout, done.stderr
        out, err = process.communicate(timeout=900)
        result = read_result(folder / "result.json")
        assert (result.state, result.reason) == ("stopped", "by golf stop") and result.steps >= 3
        assert process.returncode == 1 and b"stopped: by golf stop" in out and b"Traceback" not in out + err
        assert_nothing_is_left(folder)
    again = golf_command("stop", str(folder), "--json")
    assert json.loads(again.stdout) == [{"folder": str(folder), "state": "stopped"}] and again.returncode == 0


@pytest.fixture
def in_two(tiny: OwnDataset, runs: Path) -> Iterator[list[str]]:
    """Yield the overrides of a sweep of two seeds with checkpoints; kill afterwards what is left."""
    endless = ["schedule.iterations=300", "eval.val_loss_every=0", "launch.checkpoint_seconds=0.5"]
    yield ["-m", *tiny_overrides(tiny), *endless, "launch.train_log_every=1", "launch.jobs=2", "seed=1,2"]
    for pid in processes_of(runs):
        os.kill(pid, 9)


@pytest.mark.slow
def test_a_sweep_leaves_a_stopped_run_until_that_is_taken_back(in_two: list[str], runs: Path) -> None:
    command = [sys.executable, str(ROOT / "golf/train.py"), *in_two]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for("checkpoints", lambda: len(list(runs.glob("*/seed*/checkpoint/latest.json"))) == 2)
    (folder,) = runs.glob("*/seed2")
    assert golf_command("stop", str(folder)).returncode == 0
    out, err = process.communicate(timeout=900)
    assert process.returncode == 1 and "Traceback" not in out + err
    states = [read_result(path).state for path in sorted(runs.glob("*/seed*/result.json"))]
    assert states == ["ok", "stopped"], "the other seed went on"
    (name,) = (path.parent.name for path in runs.glob("sweeps/*/sweep.json"))
    told = json.loads(golf_command("status", name, "--json").stdout)
    assert told["states"] == {"ok": 1, "stopped": 1} and not told["at_work"]
    row = json.loads(golf_command("report", name, "--json").stdout)["rows"][0]
    assert row["states"] == {"ok": 1, "stopped": 1} and row["n"] == 1

    steps = read_result(folder / "result.json").steps
    again = golf_main(*in_two)
    assert f"golf stop --undo {folder} lets them go on" in again.stdout and again.returncode == 1
    assert read_result(folder / "result.json").steps == steps and len(list(runs.glob("*/seed*"))) == 2

    assert "to go on" in golf_command("stop", "--undo", str(folder)).stdout
    assert golf_main(*in_two).returncode == 0
    assert read_result(folder / "result.json").state == "ok" and metrics(folder, "resumed")[0]["step"] > 0
    undone = golf_command("stop", "--undo", str(folder))
    assert undone.returncode == 1 and "not stopped" in undone.stdout


def test_a_run_that_was_killed_is_stopped_and_its_own_command_goes_on(tiny: OwnDataset, runs: Path) -> None:
    cfg = compose(tiny_overrides(tiny))
    key = variant_id(cfg), cfg.seed
    folder = create_run_folder(cfg, [])
    assert stop_here(folder) == "stopped"
    done = finished_run(*key)
    assert done and done[0].state == "stopped" and not done[0].steps
    resumed, lock = next_attempt(cfg, [])
    with lock:
        assert resumed.path.name.endswith(".2") and finished_run(*key) is None, "it had no checkpoint"
    resumed.write_result(read_result(folder.result))
    resumed.result.write_text(resumed.result.read_text().replace('"stopped"', '"ok"'))
    assert stop_here(resumed) == "ok" and not resumed.stop.exists(), "what has ended keeps its state"
    assert golf_command("stop", str(folder.path)).returncode == 1


def test_a_run_of_another_machine_or_root_is_said(tiny: OwnDataset, runs: Path, tmp_path: Path) -> None:
    folder, lock = next_attempt(compose(tiny_overrides(tiny)), [])
    with lock:
        folder.begin()
        folder.start.write_text(folder.start.read_text().replace('"host": "', '"host": "another-'))
        done = golf_command("stop", str(folder.path))
        assert done.returncode == 2 and "is at work on another-" in done.stderr and not folder.stop.exists()
    (tmp_path / "elsewhere").mkdir()
    moved = folder.path.parent.rename(tmp_path / "elsewhere" / folder.path.parent.name)
    done = golf_command("stop", str(moved / "seed1337"))
    assert done.returncode == 2 and "GOLF_RUNS=… names the folder" in done.stderr


def test_a_stopped_run_is_lost_for_verdicts(runs: Path) -> None:
    scores = {0.04: [1.2286, 1.2279, 1.2291], 0.02: [1.2230, 1.2238, 1.2225]}
    write_lr_sweep(runs, scores)
    assert json.loads(golf_command("report", "lr", "--json").stdout)["rows"][0]["verdict"] == "better"
    variant = next(v for v in read_study(["lr"]).variants if v.label == "0.02" or "0.02" in v.values.values())
    folder = RunFolder(next(row.path for row in variant.rows if row.path))
    folder.result.write_text(folder.result.read_text().replace('"ok"', '"stopped"'))
    row = next(r for r in json.loads(golf_command("report", "lr", "--json").stdout)["rows"] if r["n"] == 2)
    assert row["verdict"] != "better" and "1 of 3 runs stopped" in row["verdict_reason"]
