"""Submitting without a Slurm: runs are counted, misfits refused, and jobs run what their overrides say."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from golf.commands import cancel_command
from golf.errors import GolfError
from golf.files import write_json
from golf.lab.cluster import task
from golf.lab.cluster.hardware import cluster_hardware
from golf.lab.cluster.submit import output_kept_from_children
from golf.lab.corpora.own_text import OwnDataset
from golf.lab.sweep.record import SweepRecord, read_record, write_record
from golf.run.attempts import next_attempt
from golf.run.identity import variant_id
from golf.run.locks import run_lock_name, try_lock
from golf.run.result import OK, Result, read_result
from golf.run.sweeps import sweep_name
from golf.settings import hardware
from golf.settings.composition import completed, compose
from golf.settings.config import Config, to_dict
from tests.support import ROOT, Done, golf_command, golf_main, tiny_overrides

SUBMITS = ("-m", "hydra/launcher=golf_submit", "hydra/sweeper=golf")


def dry_run(monkeypatch: pytest.MonkeyPatch, *overrides: str) -> Done:
    monkeypatch.setenv("GOLF_DRY_RUN", "1")
    return golf_main(*SUBMITS, *overrides)


def test_duplicates_are_counted_once_and_nothing_is_written(
    tiny: OwnDataset, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = dry_run(monkeypatch, *tiny_overrides(tiny), "optim.matrix_lr=0.02,2e-2,0.04", "seed=1,2")
    assert done.returncode == 0, done.stderr
    assert "4 to submit, 2 the same run as another" in done.stdout
    assert "first run's plan:" in done.stdout and "artifact" in done.stdout
    assert not list(runs.glob("*-*/seed*")) and not list(runs.glob("sweeps/*/sweep.json"))
    own = [override for override in tiny_overrides(tiny) if not override.startswith("budget")]
    assert ": 2 to submit" in dry_run(monkeypatch, *own, "budget=record,unlimited").stdout, "the laptop's clock is one"


@pytest.mark.parametrize("refuses", ["submitit is not installed", "The jobs could not be submitted"])
def test_a_submit_that_fails_leaves_no_sweep(
    refuses: str, tiny: OwnDataset, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "installed" in refuses:
        monkeypatch.setitem(sys.modules, "submitit", None)
    else:
        monkeypatch.setattr("submitit.AutoExecutor.map_array", lambda *_: [][0])
    done = golf_main(*SUBMITS, *tiny_overrides(tiny), "seed=1,2")
    assert done.returncode == 2 and refuses in done.stderr and done.stderr.count("\n") == 1
    assert ("plan:" in done.stdout) == ("installed" not in refuses), "what is missing is said before the plan"
    assert not list(runs.glob("sweeps/*/sweep.json")) and "No sweep has been run" in golf_command("status").stdout


def test_a_submit_that_fails_takes_no_record_from_a_sweep_that_was_run_here(
    tiny: OwnDataset, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("submitit.AutoExecutor.map_array", lambda *_: [][0])
    name = sweep_name("seed", completed([*tiny_overrides(tiny), "seed=1,2"]))
    # On another machine `auto` settings made another variant of the same overrides.
    earlier = {"overrides": [], "variant_id": "0123abcd", "seed": 1, "name": "tiny"}
    write_record(SweepRecord(name, [], "2026-01-01", runs=[earlier]))
    assert golf_main(*SUBMITS, *tiny_overrides(tiny), "seed=1,2").returncode == 2
    record = read_record(name)
    assert record and record.created == "2026-01-01" and len(record.runs) == 3 and record.runs[0] == earlier
    assert golf_main(*SUBMITS, *tiny_overrides(tiny), "seed=1,2").returncode == 2
    assert read_record(name) == record


def test_a_sweep_that_was_never_submitted_has_nothing_to_cancel(runs: Path) -> None:
    write_record(SweepRecord("lr-0123abcd", [], "2026-01-01"))
    with pytest.raises(GolfError, match="lr-0123abcd was never submitted: Ctrl-C where it runs ends it"):
        cancel_command.main(["lr-0123abcd"])


def test_a_typo_in_a_swept_value_is_one_sentence(tiny: OwnDataset, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = dry_run(monkeypatch, *tiny_overrides(tiny), "optim.matrix_lr=0.02,high")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "optim.matrix_lr takes a float, not 'high'" in done.stderr


def test_what_does_not_fit_the_clusters_nodes_is_refused_and_the_rest_counted(
    tiny: OwnDataset, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = [*tiny_overrides(tiny), "cluster=slurm_cpu", "cluster.nodes=3", "data.micro_batches=4,6"]
    done = dry_run(monkeypatch, *settings, "data.train_batch_tokens=768")
    assert "1 to submit, 1 refused" in done.stdout and done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: 1 of 2 runs were refused")
    assert "launch.nproc=1 on 3 nodes does not divide data.micro_batches=4" in done.stderr


def test_a_time_limit_below_the_training_time_is_told(
    tiny: OwnDataset, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = [*tiny_overrides(tiny), "cluster=slurm_cpu", "budget.train_seconds=600"]
    short = dry_run(monkeypatch, *settings, "cluster.minutes=10").stdout
    assert "no GPUs: 10 minutes each, 16 at once" in short
    assert "warning: cluster.minutes ends a job before its 600 s of training" in short
    assert "warning" not in dry_run(monkeypatch, *settings, "cluster.minutes=11").stdout


@pytest.mark.parametrize(("field", "setting"), [("time", "minutes"), ("nodes", "nodes"), ("array", "at_once")])
def test_a_field_that_a_setting_stands_for_is_refused(
    field: str, setting: str, tiny: OwnDataset, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = dry_run(monkeypatch, *tiny_overrides(tiny), "cluster=slurm_cpu", f"+cluster.sbatch.{field}=3")
    assert done.returncode == 2 and f"cluster.sbatch.{field} is set by cluster.{setting}" in done.stderr


def test_auto_is_settled_for_the_clusters_gpus() -> None:
    here = hardware.detect()
    with hardware.assumed(cluster_hardware(["cluster=slurm_h100_1gpu", "optim.matrix_lr=0.02"])):
        cfg = compose(["scale=single_gpu", "data=pydocs"])
        assert hardware.detect().gpus == 1 and hardware.detect().hopper
    assert (cfg.launch.device, cfg.model.compute_dtype, cfg.launch.compile) == ("cuda", "bf16", "full")
    assert hardware.detect() == here and cluster_hardware(["optim.matrix_lr=0.02"]) is None
    assert cluster_hardware(["cluster=local"]) is None, "its jobs run on this machine"
    with pytest.raises(GolfError, match="cluster=slurm_a100 does not exist: there are local, "):
        cluster_hardware(["cluster=slurm_a100"])


@pytest.mark.parametrize("starts_before", [0, 1])
def test_a_job_that_was_queued_again_waits_for_the_locks_of_a_lost_node(
    starts_before: int, tiny_cfg: Config, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file server frees the locks of a lost node after a minute or more, and the job has another node by then."""
    monkeypatch.setenv("SLURM_RESTART_COUNT", str(starts_before))
    monkeypatch.setattr(task, "run_ranks", lambda folder: Result("x", "y", 1, state=OK))
    held = [next_attempt(tiny_cfg, [])[1], try_lock(run_lock_name(variant_id(tiny_cfg), tiny_cfg.seed))]

    def release_one(seconds: float) -> None:
        lock = held.pop()
        assert lock
        lock.release()

    monkeypatch.setattr(task, "time", SimpleNamespace(monotonic=time.monotonic, sleep=release_one))
    write_json(runs / "job.json", {"config": to_dict(tiny_cfg), "command": [], "requeues": 0})
    said = task.run_task(str(runs / "job.json"))
    assert (said, len(held)) == ((OK, 0) if starts_before else ("another job or sweep is at work on it", 2))


def test_jobs_on_this_machine_do_not_hold_the_pipe_of_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    with output_kept_from_children():
        subprocess.run("echo a job; echo a job >&2", shell=True, check=True)
    subprocess.run("echo the command; echo the command >&2", shell=True, check=True)
    assert capfd.readouterr() == ("the command\n", "the command\n")


@pytest.mark.slow
def test_jobs_left_alone_on_this_machine_are_what_their_overrides_say(tiny: OwnDataset, runs: Path) -> None:
    overrides = [*tiny_overrides(tiny), "experiment=gold6_11l", "model=4l", "optim.matrix_lr=0.02", "drop=[xsa]"]
    command = [sys.executable, "-m", "golf", "submit", "cluster=local", *overrides, "seed=1,2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=ROOT)
    assert done.returncode == 0 and "submitted 2 jobs" in done.stdout, done.stderr
    until = time.monotonic() + 600
    while len(found := list(runs.glob("*/seed*/result.json"))) < 2:
        assert time.monotonic() < until
        time.sleep(0.5)
    assert [read_result(path).state for path in found] == [OK, OK]
    for path in found:
        ran, asked = json.loads((path.parent / "config.json").read_text()), to_dict(compose(overrides))
        assert {k: v for k, v in ran.items() if k not in ("seed", "launch", "cluster")} == {
            k: v for k, v in asked.items() if k not in ("seed", "launch", "cluster")
        }
