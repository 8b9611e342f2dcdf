"""Sweeps on a real Slurm are sent as one array, end complete, and run nothing twice, through crashes and preemption."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from golf.lab.corpora.own_text import OwnDataset
from golf.run.result import OK, Result, read_result
from tests.ideas.conftest import OUTSIDE
from tests.launch.test_processes import command_of, processes_of
from tests.support import ROOT, metrics, tiny_overrides

pytestmark = pytest.mark.slurm
WAIT_SECONDS = 900
Environment = dict[str, str]


def golf(name: str, environment: Environment, *arguments: str) -> str:
    """Return what a command of golf prints. The command has to succeed."""
    command = [sys.executable, "-m", "golf", name, *arguments]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


def submit(environment: Environment, tiny: OwnDataset, *overrides: str) -> str:
    return golf("submit", environment, "cluster=slurm_cpu", *tiny_overrides(tiny), *overrides)


def slurm_says(environment: Environment, *command: str) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=900).stdout


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < until, f"no {what} within {WAIT_SECONDS} s"
        time.sleep(0.5)


def queue_is_empty(environment: Environment) -> bool:
    return not slurm_says(environment, "squeue", "--noheader").strip()


@contextlib.contextmanager
def no_job_starts(environment: Environment) -> Iterator[None]:
    """Let jobs wait while the block runs."""
    update = ("scontrol", "update", "PartitionName=main")
    slurm_says(environment, *update, "State=DOWN")
    try:
        yield
    finally:
        slurm_says(environment, *update, "State=UP")


def results(runs: Path) -> dict[tuple[str, int], Result]:
    found = [read_result(path) for path in runs.glob("*/seed*/result.json")]
    return {(r.variant_id, r.seed): r for r in found}


def sweep_of(runs: Path) -> dict:
    (path,) = runs.glob("sweeps/*/sweep.json")
    return json.loads(path.read_text())


def states(runs: Path, environment: Environment) -> str:
    return golf("status", {**environment, "COLUMNS": "200"}, sweep_of(runs)["name"])


def test_a_sweep_is_complete_but_for_what_crashed_and_what_was_cancelled(
    cluster: Environment, tiny: OwnDataset, runs: Path
) -> None:
    sweep = ["optim.matrix_lr=0.01,0.02,0.03", "seed=1,2", "cluster.at_once=2"]
    dies = "cluster.setup=['[ $SLURM_ARRAY_TASK_ID != 3 ] || exit 3']"
    with no_job_starts(cluster):
        shown = submit(cluster, tiny, *sweep, dies)
        assert "6 to submit" in shown and "submitted 6 jobs" in shown
        assert "--wckey" not in next(runs.glob("sweeps/*/slurm/*_submission.sh")).read_text()
        array = first_job(runs).partition("_")[0]
        assert "0 to submit" in submit(cluster, tiny, *sweep)
        slurm_says(cluster, "scancel", f"{array}_5")

    wait_for("end of the jobs", lambda: queue_is_empty(cluster))
    assert [r.state for r in results(runs).values()] == [OK] * 4
    table = states(runs, cluster)
    counts = table.splitlines()[0]
    assert all(count in counts for count in ("4 ok", "1 failed", "1 lost")), table
    assert "Slurm says FAILED, exit code 3" in table
    assert "it never started, submit again" in table

    assert "2 to submit, 4 finished" in submit(cluster, tiny, *sweep)
    wait_for("end of the jobs", lambda: queue_is_empty(cluster))
    assert len(results(runs)) == 6 == len(list(runs.glob("*/seed*")))
    assert "0 to submit, 6 finished" in submit(cluster, tiny, *sweep)
    assert "6 ok" in states(runs, cluster)
    assert {(r["variant_id"], r["seed"]) for r in sweep_of(runs)["runs"]} == set(results(runs))


def test_jobs_run_the_code_that_was_submitted(
    cluster: Environment, tiny: OwnDataset, runs: Path, tmp_path: Path
) -> None:
    taken = {"commit": "0" * 40, "dirty": False}
    idea = tmp_path / "elsewhere" / "random_map"
    shutil.copytree(OUTSIDE / "random_map", idea, ignore=shutil.ignore_patterns("__pycache__"))
    chosen = [f"ideas={idea}", "tech=[random_map]", "tech.random_map.rank=16", "model.num_heads=2"]
    with no_job_starts(cluster):
        submit(cluster, tiny, "seed=1,2", *chosen)
        # The idea is edited while the jobs wait.
        (idea / "random_map.py").write_text("raise RuntimeError('edited after the jobs were sent')")
        (snapshot,) = runs.glob("sweeps/*/snapshots/*")
        said = json.loads((snapshot / "snapshot.json").read_text())
        assert (snapshot / "golf/train.py").exists() and said["packages"]
        (snapshot / "snapshot.json").write_text(json.dumps({**said, "git": taken}))
    wait_for("end of the jobs", lambda: queue_is_empty(cluster))
    for log in runs.glob("sweeps/*/slurm/*_submission.sh"):
        assert f"export PYTHONPATH={snapshot}" in log.read_text().replace("'", "")
    # The jobs' current directory is this checkout, where Python would look first. It is at another commit.
    records = [json.loads(path.read_text()) for path in runs.glob("4l*/seed*/environment.json")]
    assert [record["git"] for record in records] == [taken, taken]
    assert [result.state for result in results(runs).values()] == [OK, OK]


def started(runs: Path, step: int) -> bool:
    folders = [path.parent for path in runs.glob("*/seed*/metrics.jsonl")]
    return any(metric["step"] >= step for folder in folders for metric in metrics(folder, "train"))


def test_a_requeued_job_starts_over_and_says_so(cluster: Environment, tiny: OwnDataset, runs: Path) -> None:
    submit(cluster, tiny, "schedule.iterations=500", "launch.train_log_every=1", "launch.checkpoint_seconds=0")
    wait_for("steps", lambda: started(runs, 3))
    slurm_says(cluster, "scontrol", "requeue", first_job(runs))
    wait_for("result of the second attempt", lambda: any(r.state == OK for r in results(runs).values()))
    (result,) = (r for r in results(runs).values() if r.state == OK)
    assert result.attempt == 2 and result.steps == 500
    assert len(list(runs.glob("*/seed*"))) == 2


def first_job(runs: Path) -> str:
    return json.loads(next(runs.glob("sweeps/*/submitted.jsonl")).read_text().splitlines()[0])["job"]


def test_a_preempted_long_run_goes_on_from_its_checkpoint(cluster: Environment, tiny: OwnDataset, runs: Path) -> None:
    settings = ["schedule.iterations=300", "launch.train_log_every=1", "launch.checkpoint_seconds=0.2"]
    # The default dtype of GPUs, not the one of other tests.
    submit(cluster, tiny, *settings, "model.compute_dtype=bf16", "+cluster.sbatch.partition=low")
    wait_for("checkpoint", lambda: any(runs.glob("*/seed*/checkpoint/latest.json")))
    slurm_says(cluster, "srun", "--partition=main", "--nodes=2", "--exclusive", "sleep", "1")
    wait_for("result", lambda: any(r.state == OK for r in results(runs).values()))
    (result,) = (r for r in results(runs).values() if r.state == OK)
    (folder,) = runs.glob("*/seed*")
    assert result.attempt == 2 and result.steps == 300
    assert metrics(folder, "resumed")[0]["step"] > 0


def test_a_run_goes_on_elsewhere_when_its_node_is_lost(cluster: Environment, tiny: OwnDataset, runs: Path) -> None:
    submit(cluster, tiny, "schedule.iterations=500", "launch.train_log_every=1", "launch.checkpoint_seconds=0.2")
    wait_for("checkpoint", lambda: any(runs.glob("*/seed*/checkpoint/latest.json")))
    node = slurm_says(cluster, "squeue", "--noheader", "--format=%N").strip()
    daemon = Path(cluster["GOLF_SLURM_DIR"], f"slurmd.{node}.pid")
    # Slurm's processes go first: the end of a job that they still report would be a failure of the job.
    for pid in [int(daemon.read_text()), *steps_of_jobs(), *processes_of(runs)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    try:
        wait_for("result", lambda: any(r.state == OK for r in results(runs).values()))
    finally:
        slurm_says(cluster, "slurmd", "-N", node)
    (result,) = (r for r in results(runs).values() if r.state == OK)
    assert result.attempt == 2 and result.steps == 500
    assert metrics(next(runs.glob("*/seed*")), "resumed")[0]["step"] > 0
    wait_for("both nodes", lambda: "down" not in slurm_says(cluster, "sinfo", "--noheader", "--format=%T"))


def steps_of_jobs() -> list[int]:
    """Return Slurm's own processes beside those of a job."""
    found = subprocess.run(["pgrep", "-f", "^slurmstepd: "], capture_output=True, text=True, check=False).stdout
    return [int(pid) for pid in found.split()]


def test_one_run_on_two_nodes(cluster: Environment, tiny: OwnDataset, runs: Path) -> None:
    submit(cluster, tiny, "cluster.nodes=2")
    wait_for("end of the job", lambda: queue_is_empty(cluster))
    (folder,) = runs.glob("*/seed*")
    result = read_result(folder / "result.json")
    assert result.state == OK, result.reason
    assert "world_size:2 grad_accum_steps:2" in (folder / "train.log").read_text()
    assert {p.name for p in (folder / "ranks").iterdir()} >= {"node0", "node1"}


def test_cancelling_a_sweep_stops_what_is_left(cluster: Environment, tiny: OwnDataset, runs: Path) -> None:
    endless = ["schedule.iterations=1000000", "eval.val_loss_every=0"]
    submit(cluster, tiny, *endless, "seed=range(1,7)", "cluster.at_once=2")
    wait_for("steps", lambda: started(runs, 1))
    assert "cancelled: 6 of 6 jobs" in golf("cancel", cluster, sweep_of(runs)["name"])
    wait_for("empty queue", lambda: queue_is_empty(cluster))
    assert not any(r.state == OK for r in results(runs).values())
    assert "ok" not in states(runs, cluster).splitlines()[0]
    wait_for("end of all processes", lambda: not processes_of(runs))


def test_one_run_is_stopped_and_the_others_go_on(cluster: Environment, tiny: OwnDataset, runs: Path) -> None:
    sweep = ["schedule.iterations=400", "launch.checkpoint_seconds=0.5", "cluster.at_once=2", "seed=1,2"]
    submit(cluster, tiny, *sweep)
    wait_for("checkpoint", lambda: bool(list(runs.glob("*/seed1/checkpoint/latest.json"))))
    folder = next(runs.glob("*/seed1"))
    assert f"{folder}: stopped" in golf("stop", cluster, str(folder))
    wait_for("empty queue", lambda: queue_is_empty(cluster))
    assert "1 ok" in states(runs, cluster).splitlines()[0] and "1 stopped" in states(runs, cluster).splitlines()[0]
    shown = submit(cluster, tiny, *sweep)
    assert "0 to submit" in shown and f"golf stop --undo {folder} lets them go on" in shown
    assert "to go on" in golf("stop", cluster, "--undo", str(folder))
    assert "1 to submit" in submit(cluster, tiny, *sweep)
    wait_for("empty queue", lambda: queue_is_empty(cluster))
    assert "2 ok" in states(runs, cluster) and metrics(folder, "resumed")[0]["step"] > 0


def test_a_time_limit_leaves_an_interrupted_run_and_no_process(
    cluster: Environment, tiny: OwnDataset, runs: Path
) -> None:
    limits = ["cluster.minutes=2", "cluster.signal_seconds=30", "cluster.requeues=0"]
    submit(cluster, tiny, "schedule.iterations=1000000", "eval.val_loss_every=0", "launch.nproc=2", *limits)
    wait_for("steps", lambda: started(runs, 3))
    # Two endless ranks would take both cores from the tests beside this one. A signal waits for a stopped process.
    ranks = [pid for pid in processes_of(runs) if b"golf.launch.worker" in command_of(pid)]
    for pid in ranks:
        os.kill(pid, signal.SIGSTOP)
    wait_for("last minute", lambda: seconds_left(cluster) < 60)
    for pid in ranks:
        os.kill(pid, signal.SIGCONT)
    wait_for("empty queue", lambda: queue_is_empty(cluster))
    (result,) = results(runs).values()
    assert (result.state, result.reason) == ("interrupted", "stopped by SIGUSR2")
    wait_for("end of all processes", lambda: not processes_of(runs))


def seconds_left(environment: Environment) -> int:
    """Return the seconds until the time limit of the one job."""
    minutes, seconds = slurm_says(environment, "squeue", "--noheader", "--format=%L").strip().split(":")
    return 60 * int(minutes) + int(seconds)


def sent_rounds(runs: Path) -> list[dict]:
    paths = list(runs.glob("sweeps/*/waves.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def test_a_sweep_in_rounds_goes_on_by_itself_and_after_the_death_of_its_controller(
    cluster: Environment, tiny: OwnDataset, runs: Path
) -> None:
    rates = "optim.matrix_lr=0.02,0.05,1e-6"
    sweep = ["sweep.until=decided", "sweep.max_seeds=3", "schedule.iterations=2", "optim.tied_embed_lr=0.02", rates]
    # The first controller dies before.
    with no_job_starts(cluster):
        assert "round 1; job" in submit(cluster, tiny, *sweep)
        assert "round 1 is at work, and job" in submit(cluster, tiny, *sweep)
        slurm_says(cluster, "scancel", sent_rounds(runs)[0]["job"])
    wait_for("end of the jobs", lambda: queue_is_empty(cluster))
    assert len(results(runs)) == 3
    assert "after round 1 of at most 3: 0 decided, 2 go on; no job goes on with it" in states(runs, cluster)
    # The same command takes up the first round as it is, and the next rounds follow without a command.
    submit(cluster, tiny, *sweep)
    wait_for("end of the sweep", lambda: queue_is_empty(cluster))
    assert [wave["look"] for wave in sent_rounds(runs)] == [1, 2, 3]
    assert "the sweep has ended" in states(runs, cluster)
    asked = [(run["variant_id"], run["seed"]) for run in sweep_of(runs)["runs"]]
    assert set(asked) == set(results(runs)) and len(asked) == len(set(asked))
    assert sweep_of(runs)["sequential"]["seeds"] == [1337, 1, 2]
    assert {result.host for result in results(runs).values()} == {"n1", "n2"}
    assert "round" not in submit(cluster, tiny, *sweep).replace("after round", "")


def kill_before_the_record(call: str) -> list[str]:
    """Return a command that makes `call` and is killed once Slurm has the jobs, before their ids are written down."""
    code = f"""
import os, signal, sys
from golf.lab.cluster import submit, waves
submit.append_lines = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
{call}
"""
    return [sys.executable, "-c", code]


def array_jobs(environment: Environment) -> int:
    names = slurm_says(environment, "squeue", "--noheader", "--array", "--format=%j").split()
    return sum(not name.endswith("-rounds") for name in names)


def test_a_sender_that_dies_before_it_writes_the_jobs_down_sends_none_twice(
    cluster: Environment, tiny: OwnDataset, runs: Path
) -> None:
    sweep = ["sweep.until=decided", "sweep.max_seeds=2", "schedule.iterations=2", "optim.matrix_lr=0.02,0.021"]
    with no_job_starts(cluster):
        command = ["cluster=slurm_cpu", *tiny_overrides(tiny), *sweep]
        call = f"from golf.commands.submit_command import main; main({command!r})"
        died = subprocess.run(kill_before_the_record(call), env=cluster, cwd=ROOT, timeout=900, capture_output=True)
        assert died.returncode == -signal.SIGKILL and not list(runs.glob("sweeps/*/submitted.jsonl"))
        assert array_jobs(cluster) == 2
        shown = submit(cluster, tiny, *sweep)
        assert "0 to submit, 2 running or queued" in shown
        assert array_jobs(cluster) == 2 and len(submitted_jobs(runs)) == 2
        told = board_says(cluster, runs)
        # Slurm says why: the partition is down.
        waits = [(run["state"], run["detail"].split(", ")[:2]) for run in told["runs"]]
        assert waits == [("waiting", ["pending", "PartitionDown"])] * 2
        assert "after round 0 of at most 2" in told["about"] and "sends the next" in told["about"]
        (controller,) = sent_rounds(runs)
        slurm_says(cluster, "scontrol", "hold", controller["job"])
    wait_for("results of the first round", lambda: len(results(runs)) == 2 and array_jobs(cluster) == 0)

    # The controller of the first round, started by hand, dies in the same way; Slurm's own one goes on.
    call = f"waves.run_controller({sweep_of(runs)['name']!r}, 1)"
    died = subprocess.run(kill_before_the_record(call), env=cluster, cwd=ROOT, timeout=900, capture_output=True)
    assert died.returncode == -signal.SIGKILL, died.stderr
    slurm_says(cluster, "scontrol", "release", controller["job"])
    wait_for("end of the sweep", lambda: queue_is_empty(cluster))
    assert [wave["look"] for wave in sent_rounds(runs)] == [1, 2]
    assert "the sweep has ended" in states(runs, cluster)
    assert len(results(runs)) == 4 == len(submitted_jobs(runs)) == len(list(runs.glob("*/seed*")))


def board_says(environment: Environment, runs: Path) -> dict:
    asked = f"states({sweep_of(runs)['name']!r})"
    code = f"import json; from golf.lab.cluster.follow import states; print(json.dumps({asked}))"
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, timeout=900)
    return json.loads(done.stdout)


def submitted_jobs(runs: Path) -> set[str]:
    paths = runs.glob("sweeps/*/submitted.jsonl")
    return {json.loads(line)["job"] for path in paths for line in path.read_text().splitlines()}
