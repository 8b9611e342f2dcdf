"""Submit a sweep to a cluster: find the runs that are still missing and send them as one job array."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from golf.errors import GolfError
from golf.files import append_lines, read_lines, write_json
from golf.lab.cluster.queue import job_states
from golf.lab.cluster.rented import send_runs
from golf.lab.cluster.snapshot import take_snapshot
from golf.lab.cluster.unrecorded import note_sending, note_sent, unrecorded_jobs
from golf.lab.sweep.jobs import FINISHED, RUNNING, Job, Key, Refused, dealt, distinct, progress_of
from golf.lab.sweep.record import extended, make_record, read_record, write_record
from golf.paths import import_variables
from golf.run.folder import runs_root
from golf.run.locks import Lock, try_lock
from golf.run.sweeps import sweep_folder
from golf.settings.config import to_dict
from golf.settings.consistency import check

ANOTHER_SUBMITS_SECONDS = 300
OWN_FIELDS = {"time": "cluster.minutes", "nodes": "cluster.nodes", "array": "cluster.at_once"}  # sbatch's → settings


@dataclass(frozen=True)
class ClusterOrder:
    """The runs of a sweep that have to be sent to a cluster, and counts of those that need not be."""

    jobs: list[Job]  # distinct valid runs of the sweep
    to_run: list[Job]  # runs to send
    finished: int
    running: int  # runs at work or in a queue
    repeated: int  # jobs that are the same run as another
    refused: list[Refused]

    @property
    def gpu_hours(self) -> float:
        """GPU hours if every job uses up its time limit."""
        return sum(_gpus(job) * job.cfg.cluster.minutes / 60 for job in self.to_run)

    @property
    def dollars(self) -> float:
        """Price of `gpu_hours`."""
        return sum(_gpus(j) * j.cfg.cluster.minutes / 60 * j.cfg.cluster.dollars_per_gpu_hour for j in self.to_run)


def _gpus(job: Job) -> int:
    """Return the GPUs of a job on all its nodes."""
    return job.cfg.cluster.gpus * job.cfg.launch.nodes


def make_order(asked: Sequence[Job | Refused]) -> ClusterOrder:
    """Return the order for `asked`. Runs that have finished, are running or wait in a queue are not sent again."""
    # Seeds of a variant fit a cluster alike, and each check takes a hundredth of a second.
    fits: dict[str, Job | Refused] = {}
    placed: list[Job | Refused] = []
    for job in asked:
        if isinstance(job, Job):
            key = repr((job.key[0], job.cfg.launch, job.cfg.cluster))
            fits[key] = fits.get(key) or _on_cluster(job)
            job = _with_fit(job, fits[key])
        placed.append(job)
    jobs = [job for job in placed if isinstance(job, Job)]
    wanted, queued = distinct(jobs), _queued_for(jobs)
    # Slurm gives the jobs of an array to its nodes in turn.
    dealt_out = dealt(wanted, [job.key[1] for job in wanted])
    progress = {job.key: progress_of(job.key) for job in wanted}
    to_run, running = [], 0
    for job in dealt_out:
        if progress[job.key] == RUNNING or job.key in queued:
            running += 1
        elif progress[job.key] != FINISHED or job.cfg.launch.fresh:
            to_run.append(job)
    finished = len(wanted) - running - len(to_run)
    refused = [job for job in placed if isinstance(job, Refused)]
    return ClusterOrder(wanted, to_run, finished, running, len(jobs) - len(wanted), refused)


def _on_cluster(job: Job) -> Job | Refused:
    """Return `job` with the ranks and nodes of its cluster, or `Refused` if it does not fit them."""
    cluster, launch = job.cfg.cluster, job.cfg.launch
    launch = dataclasses.replace(launch, nodes=cluster.nodes, nproc=cluster.gpus or launch.nproc)
    cfg = dataclasses.replace(job.cfg, launch=launch)
    try:
        check(cfg)
        # submitit would send these in place of the settings that limits, prices and the array of runs follow.
        for field in OWN_FIELDS.keys() & cluster.sbatch.keys():
            raise GolfError(f"cluster.sbatch.{field} is set by {OWN_FIELDS[field]}: give that and leave the field out.")
    except GolfError as error:
        return Refused(job.overrides, str(error))
    return dataclasses.replace(job, cfg=cfg)


def _with_fit(job: Job, other: Job | Refused) -> Job | Refused:
    """Return `job` with the ranks and nodes of `other`, of its variant on its cluster, or `Refused` as that is."""
    if isinstance(other, Refused):
        return Refused(job.overrides, other.sentence)
    return dataclasses.replace(job, cfg=dataclasses.replace(job.cfg, launch=other.cfg.launch))


def _queued_for(jobs: Sequence[Job]) -> dict[Key, str]:
    """Return `queued_runs`; none if no job goes to Slurm and Slurm does not answer."""
    try:
        return queued_runs()
    except GolfError:
        if any(job.cfg.cluster.executor == "slurm" for job in jobs):
            raise
        return {}


def queued_runs() -> dict[Key, str]:
    """Return the runs for which a job waits or runs, of any sweep, with the jobs' ids."""
    sent = _sent_runs()
    return {sent[job]: job for job, state in job_states(sent).items() if state.is_open}


def _sent_runs() -> dict[str, Key]:
    """Return the run of every job that was sent, of any sweep, by the job's id."""
    return {job: key for path in runs_root().glob("sweeps/*/submitted.jsonl") for key, job in read_submitted(path)}


def read_submitted(path: Path) -> Iterator[tuple[Key, str]]:
    """Yield run and Slurm job of every line of a sweep's `submitted.jsonl`, the oldest first."""
    for values in read_lines(path):
        yield (values["variant_id"], values["seed"]), values["job"]


def submit(order: ClusterOrder, name: str) -> list[str]:
    """Send the runs of `order` as one job array, or to a rented machine, with a snapshot of the code.

    Return the jobs' ids.

    Raises `GolfError` if submitit is missing or the cluster refuses.
    """
    folder = sweep_folder(name)
    if order.to_run[0].cfg.cluster.executor == "ssh":
        return send_runs(order.to_run, name)
    snapshot = take_snapshot(folder / "snapshots")
    files = [_write_job(folder / "jobs", job) for job in order.to_run]
    sender = executor(order.to_run[0], folder / "slurm", snapshot, name)
    # Imported here, because it brings torch. Status and cancel import this module and do without torch.
    from golf.lab.cluster.task import run_task

    note_sending(folder, [job.key for job in order.to_run])
    try:
        # Jobs on this machine are processes that outlive this one.
        with output_kept_from_children():
            jobs = sender.map_array(run_task, files)
    except Exception as error:
        note_sent(folder)
        # submitit passes on whatever sbatch said, in exceptions of many classes.
        said = " ".join(str(error).split())
        hint = ": more than MaxArraySize allows, so submit fewer at once" if "job array" in said else ""
        raise GolfError(f"The jobs could not be submitted: {said}{hint}") from error
    ids = [job.job_id for job in jobs]
    sent = zip(order.to_run, ids, strict=True)
    lines = [{"variant_id": job.key[0], "seed": job.key[1], "job": id} for job, id in sent]
    append_lines(folder / "submitted.jsonl", lines)
    note_sent(folder)
    return ids


@contextlib.contextmanager
def output_kept_from_children() -> Iterator[None]:
    """Keep the terminal from processes that start meanwhile: a pipe from this process would end only with the last."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = {stream: os.dup(stream) for stream in (1, 2)}
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for stream in kept:
            os.dup2(nowhere, stream)
        yield
    finally:
        for stream, copy in kept.items():
            os.dup2(copy, stream)
        for descriptor in (nowhere, *kept.values()):
            os.close(descriptor)


def record_order(order: ClusterOrder, name: str) -> None:
    """Write the record of sweep `name`, for reports and for the same command later."""
    before = read_record(name)
    made = make_record(name, sys.argv, order.jobs, order.refused, before)
    # A sweep of the same name may have had other variants: `auto` settings follow the machine.
    known = {run["variant_id"] for run in before.runs} if before else set()
    write_record(extended(before, made) if before and known - {run["variant_id"] for run in made.runs} else made)


def lock_submitting() -> Lock:
    """Lock against a second submitting process, so that no run is sent twice. Waits up to five minutes for the other.

    Jobs of an earlier process that died before it wrote them down are written down now. Raises `GolfError` if the other
    process does not end.
    """
    until = time.monotonic() + ANOTHER_SUBMITS_SECONDS
    while (lock := try_lock("submission")) is None:
        if time.monotonic() > until:
            raise GolfError("Another process submits runs and does not end: end it and try again.")
        time.sleep(0.2)
    for folder, lines in unrecorded_jobs(set(_sent_runs())):
        append_lines(folder / "submitted.jsonl", lines)
        note_sent(folder)
    return lock


def _write_job(folder: Path, job: Job) -> str:
    """Write the file that `task.run_task` reads, and return its path."""
    path = folder / f"{job.key[0]}-seed{job.key[1]}.json"
    command = ["golf/train.py", *job.overrides]
    write_json(path, {"command": command, "requeues": job.cfg.cluster.requeues, "config": to_dict(job.cfg)})
    return str(path)


def import_submitit() -> Any:
    """Return the module submitit. Raises `GolfError` if it is not installed."""
    try:
        import submitit
    except ImportError as error:
        raise GolfError("submitit is not installed: pip install 'golf[slurm]' brings it.") from error
    return submitit


def executor(job: Job, folder: Path, snapshot: Path, name: str) -> Any:
    """Return submitit's executor with the resources of `job`, which are those of every job of its sweep."""
    cluster = job.cfg.cluster
    made = import_submitit().AutoExecutor(folder=folder, cluster=cluster.executor)
    ranks = job.cfg.launch.nproc
    settings: dict[str, Any] = {
        "name": f"golf-{name}",
        "timeout_min": cluster.minutes,
        "nodes": job.cfg.launch.nodes,
        # One task starts torchrun, which starts the ranks of the node.
        "tasks_per_node": 1,
        "cpus_per_task": cluster.cpus_per_rank * ranks,
    }
    if cluster.gpus:
        settings["gpus_per_node"] = cluster.gpus
    if cluster.executor == "slurm":
        sbatch = {key: value for key, value in cluster.sbatch.items() if value is not None}
        # Without one submitit sends a key of its own, and the executor around this one passes no None on.
        made._executor.parameters["wckey"] = sbatch.pop("wckey", None)
        # A job runs the snapshot's code and writes to this process's runs root.
        variables = {**import_variables(snapshot), "GOLF_RUNS": str(runs_root())}
        exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
        settings |= {
            "slurm_array_parallelism": cluster.at_once,
            "slurm_signal_delay_s": cluster.signal_seconds,
            "slurm_setup": [*exports, *cluster.setup],
            # With `requeue` Slurm starts a job again after a preemption or the loss of its node.
            "slurm_additional_parameters": {"requeue": True, **sbatch},
        }
    made.update_parameters(**settings)
    return made
