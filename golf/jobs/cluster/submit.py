"""Sending the runs of a sweep away: what is left of it to run, as one job array, and the terminal back at once."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from golf.errors import GolfError
from golf.files import disk_error, write_json
from golf.jobs.cluster.queue import OPEN, job_states
from golf.jobs.cluster.shortcut import note_command
from golf.jobs.cluster.snapshot import take_snapshot
from golf.jobs.sweep.jobs import FINISHED, RUNNING, Job, Key, Refused, distinct, progress_of
from golf.jobs.sweep.record import make_record, read_record, sweep_folder, write_record
from golf.run.folder import runs_root
from golf.run.locks import Lock, try_lock
from golf.settings.config import ClusterConfig, to_dict
from golf.settings.consistency import check

ANOTHER_SUBMITS_SECONDS = 300


@dataclass(frozen=True)
class Submission:
    """A sweep sorted by what has to be done about each of its runs."""

    jobs: list[Job]  # each run once
    to_run: list[Job]
    finished: int
    running: int  # or waiting in a queue
    repeated: int
    refused: list[Refused]

    @property
    def gpu_hours(self) -> float:
        """At most: jobs that use up their time limit."""
        return sum(_gpus(job) * job.cfg.cluster.minutes / 60 for job in self.to_run)

    @property
    def dollars(self) -> float:
        return sum(_gpus(j) * j.cfg.cluster.minutes / 60 * j.cfg.cluster.dollars_per_gpu_hour for j in self.to_run)


def _gpus(job: Job) -> int:
    return job.cfg.cluster.gpus * job.cfg.launch.nodes


def sort_out(asked: Sequence[Job | Refused]) -> Submission:
    """Which of `asked` has to be sent: not what has finished, is running, waits in a queue or is there twice."""
    placed = [_placed(job) if isinstance(job, Job) else job for job in asked]
    jobs = [job for job in placed if isinstance(job, Job)]
    wanted, queued = distinct(jobs), queued_runs()
    progress = {job.key: progress_of(job.key) for job in wanted}
    to_run, running = [], 0
    for job in wanted:
        if progress[job.key] == RUNNING or job.key in queued:
            running += 1
        elif progress[job.key] != FINISHED or job.cfg.launch.fresh:
            to_run.append(job)
    finished = len(wanted) - running - len(to_run)
    refused = [job for job in placed if isinstance(job, Refused)]
    return Submission(wanted, to_run, finished, running, len(jobs) - len(wanted), refused)


def _placed(job: Job) -> Job | Refused:
    """`job` on the nodes and GPUs that its cluster has."""
    cluster, launch = job.cfg.cluster, job.cfg.launch
    launch = dataclasses.replace(launch, nodes=cluster.nodes, nproc=cluster.gpus or launch.nproc)
    cfg = dataclasses.replace(job.cfg, launch=launch)
    try:
        check(cfg)
    except GolfError as error:
        return Refused(job.overrides, str(error))
    return dataclasses.replace(job, cfg=cfg)


def queued_runs() -> dict[Key, str]:
    """Runs that a job of any sweep waits for or works on, with the job's id."""
    sent = {job: key for path in runs_root().glob("sweeps/*/submitted.jsonl") for key, job in read_submitted(path)}
    return {sent[job]: job for job, state in job_states(sent).items() if state in OPEN}


def read_submitted(path: Path) -> Iterator[tuple[Key, str]]:
    """Run and Slurm job of every line of a sweep's `submitted.jsonl`, the oldest first."""
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        values = json.loads(line)
        yield (values["variant_id"], values["seed"]), values["job"]


def submit(submission: Submission, name: str) -> list[str]:
    """Send what is to run as one array that runs from a snapshot of the code; returns the jobs' ids."""
    folder = sweep_folder(name)
    snapshot = take_snapshot(folder / "snapshots")
    files = [_write_job(folder / "jobs", job) for job in submission.to_run]
    cluster = submission.to_run[0].cfg.cluster
    executor = _executor(cluster, submission.to_run[0], folder / "slurm", snapshot, name)
    from golf.jobs.cluster.task import run_task

    try:
        jobs = executor.map_array(run_task, files)
    except Exception as error:  # submitit passes on whatever sbatch said
        raise GolfError(f"The jobs could not be submitted: {' '.join(str(error).split())}") from error
    ids = [job.job_id for job in jobs]
    _note_submitted(folder / "submitted.jsonl", submission.to_run, ids)
    return ids


def note_asked(submission: Submission, name: str) -> None:
    """Write down what the sweep consists of, for reports and for the same command later."""
    write_record(make_record(name, sys.argv, submission.jobs, submission.refused, read_record(name)))
    note_command(name, [a for a in sys.argv[1:] if a != "-m" and not a.startswith("hydra/")])


def one_submission_at_a_time() -> Lock:
    """So that two of them do not both find a run missing. Waits for the other one."""
    until = time.monotonic() + ANOTHER_SUBMITS_SECONDS
    while (lock := try_lock("submission")) is None:
        if time.monotonic() > until:
            raise GolfError("Another submission is going on and does not end: end it and try again.")
        time.sleep(0.2)
    return lock


def _write_job(folder: Path, job: Job) -> str:
    path = folder / f"{job.key[0]}-seed{job.key[1]}.json"
    command = ["golf/train.py", *job.overrides]
    write_json(path, {"command": command, "requeues": job.cfg.cluster.requeues, "config": to_dict(job.cfg)})
    return str(path)


def _note_submitted(path: Path, jobs: Sequence[Job], ids: Sequence[str]) -> None:
    lines = [
        json.dumps({"variant_id": job.key[0], "seed": job.key[1], "job": job_id}) + "\n"
        for job, job_id in zip(jobs, ids, strict=True)
    ]
    try:
        with path.open("a") as file:
            file.write("".join(lines))
    except OSError as error:
        raise disk_error(path, error) from error


def _executor(cluster: ClusterConfig, job: Job, folder: Path, snapshot: Path, name: str) -> Any:
    try:
        import submitit
    except ImportError as error:
        raise GolfError("submitit is not installed: pip install 'golf[slurm]' brings it.") from error
    executor = submitit.AutoExecutor(folder=folder, cluster=cluster.executor)
    ranks = job.cfg.launch.nproc
    settings: dict[str, Any] = {
        "name": f"golf-{name}",
        "timeout_min": cluster.minutes,
        "nodes": job.cfg.launch.nodes,
        "tasks_per_node": 1,
        "cpus_per_task": cluster.cpus_per_rank * ranks,
    }
    if cluster.gpus:
        settings["gpus_per_node"] = cluster.gpus
    if cluster.executor == "slurm":
        sbatch = {key: value for key, value in cluster.sbatch.items() if value is not None}
        settings |= {
            "slurm_array_parallelism": cluster.at_once,
            "slurm_signal_delay_s": cluster.signal_seconds,
            "slurm_wckey": sbatch.pop("wckey", None),
            "slurm_setup": [*_environment(snapshot), *cluster.setup],
            "slurm_additional_parameters": {"requeue": True, **sbatch},
        }
    executor.update_parameters(**settings)
    return executor


def _environment(snapshot: Path) -> list[str]:
    """Shell lines that make a job run the snapshot's code and write where this process would."""
    path = os.pathsep.join(filter(None, (str(snapshot), os.environ.get("PYTHONPATH"))))
    return [f"export PYTHONPATH={_quoted(path)}", f"export GOLF_RUNS={_quoted(str(runs_root()))}"]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
