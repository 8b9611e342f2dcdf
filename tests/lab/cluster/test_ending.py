"""What is said of jobs that ended without a result: exit code, last line and path of the log, and what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from golf.errors import GolfError
from golf.lab.cluster.ending import FAILED, LOST, ending
from golf.lab.cluster.queue import JobState, job_states
from golf.lab.cluster.status import UNKNOWN, sweep_status
from golf.lab.cluster.submit import make_order
from golf.lab.sweep.jobs import Job
from golf.lab.sweep.record import SweepRecord
from tests.support import compose


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    (tmp_path / "6_0_0_log.err").write_text("line 20: module: command not found\n\nsrun: error: n1: task 0: Exited\n")
    (tmp_path / "6_1_0_log.err").write_text("")
    (tmp_path / "6_1_0_log.out").write_text("another job or sweep is at work on it\n")
    (tmp_path / "6_3_0_log.err").write_text("")
    (tmp_path / "6_10_0_log.err").write_text("of another job\n")
    return tmp_path


def test_a_failed_job_tells_exit_code_last_line_and_log(logs: Path) -> None:
    state, sentence = ending("6_0", JobState("FAILED", "3:0"), logs)
    assert state == FAILED and "Slurm says FAILED, exit code 3" in sentence
    assert f"“line 20: module: command not found” ({logs / '6_0_0_log.err'})" in sentence
    assert sentence.endswith("mend that before you submit again")


@pytest.mark.parametrize(
    ("job", "slurm", "state", "words"),
    [
        ("6_1", JobState("COMPLETED", "0:0"), FAILED, "“another job or sweep is at work on it”"),
        ("6_2", JobState("FAILED", "0:9"), FAILED, "FAILED, signal 9; no log"),
        ("6_0", JobState("OUT_OF_MEMORY", "0:125"), FAILED, "ask for more memory with +cluster.sbatch.mem=…"),
        ("6_0", JobState("TIMEOUT", "0:0"), FAILED, "raise cluster.minutes"),
        ("6_0", None, FAILED, "ended without a result: “line 20: module: command not found”"),
        ("6_0", JobState("NODE_FAIL", "0:0"), LOST, "Slurm says NODE_FAIL, and it left no result: submit again"),
        ("6_0", JobState("CANCELLED+", "0:15"), LOST, "Slurm says CANCELLED, and it left no result: submit again"),
        ("6_3", None, FAILED, "ended without a result: an empty log"),
        ("6_2", None, LOST, "it never started, submit again"),
    ],
)
def test_only_what_chance_ended_is_to_be_submitted_again(
    job: str, slurm: JobState | None, state: str, words: str, logs: Path
) -> None:
    found, sentence = ending(job, slurm, logs)
    assert found == state and words in sentence
    assert state == LOST or not sentence.endswith(": submit again")


def test_a_job_that_only_the_controller_remembers_has_a_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`scontrol` of Slurm 22.05 prints an array's jobs with two more keys than a job of its own."""
    lines = {
        "3": "JobId=3 JobName=golf JobState=FAILED Reason=NonZeroExitCode ExitCode=0:9",
        "4": "JobId=5 ArrayJobId=4 ArrayTaskId=1 JobState=FAILED ExitCode=3:0",
    }
    for name, text in {"squeue": "exit 0", "sacct": "exit 1"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
    cases = "".join(f'[ "$4" = {job} ] && echo "{line}"\n' for job, line in lines.items())
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\n{cases}exit 0\n")
    for path in tmp_path.iterdir():
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert job_states(["3", "4_1", "4_0"]) == {"3": JobState("FAILED", "0:9"), "4_1": JobState("FAILED", "3:0")}


def test_a_job_that_waits_says_what_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unavailable = "ReqNodeNotAvail, UnavailableNodes:n1"
    lines = f"5_0 PENDING PartitionTimeLimit\\n5_1 PENDING {unavailable}\\n6 RUNNING None\\n7 PENDING\\n"
    (tmp_path / "squeue").write_text(f"#!/bin/sh\nprintf '{lines}'\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    reasons = {job: state.reason for job, state in job_states(["5_0", "5_1", "6", "7"]).items()}
    assert reasons == {"5_0": "PartitionTimeLimit", "5_1": unavailable, "6": "None", "7": ""}


@pytest.fixture
def no_controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm's client is here, and its controller does not answer."""
    (tmp_path / "squeue").write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2\nexit 1\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


def sent(runs: Path) -> SweepRecord:
    (runs / "sweeps/s").mkdir(parents=True)
    (runs / "sweeps/s/submitted.jsonl").write_text('{"variant_id": "abc", "seed": 1, "job": "7_0"}\n')
    rows = [{"overrides": [f"seed={seed}"], "variant_id": "abc", "seed": seed, "name": "x"} for seed in (1, 2)]
    record = SweepRecord("s", [], "", runs=rows)
    (runs / "sweeps/s/sweep.json").write_text(json.dumps(vars(record)))
    return record


def test_the_folders_are_shown_while_the_controller_is_down(runs: Path, no_controller: None) -> None:
    first, second = sweep_status(sent(runs))
    assert first.state == UNKNOWN and "Unable to contact slurm controller" in first.detail
    assert second.state == "not started"


def test_runs_of_a_sweep_on_this_machine_are_stopped_or_not_started(runs: Path) -> None:
    """One was killed after step 3, the other waits for a share of the machine: neither was ever to be submitted."""
    record = sent(runs)
    (runs / "sweeps/s/submitted.jsonl").unlink()
    killed = runs / "x-abc/seed1"
    killed.mkdir(parents=True)
    (killed / "metrics.jsonl").write_text('{"event": "train", "step": 3, "train_seconds": 2.0}\n')
    first, second = sweep_status(record)
    assert (first.state, first.detail) == ("killed", "step 3, 2 s") and second.state == "not started"
    told = {"state": "interrupted", "reason": "stopped by SIGUSR2"}
    (killed / "result.json").write_text(json.dumps(told))
    first, _ = sweep_status(record)
    assert first.detail == "stopped by SIGUSR2, Slurm's notice of an early end: submit again"


def test_jobs_on_this_machine_need_no_controller(runs: Path, no_controller: None) -> None:
    sent(runs)
    cfg = compose(["scale=laptop"])
    assert len(make_order([Job.of([], cfg)]).to_run) == 1
    cfg.cluster.executor = "slurm"
    with pytest.raises(GolfError, match="squeue refused: Unable to contact"):
        make_order([Job.of([], cfg)])
