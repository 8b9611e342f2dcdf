"""Run one job of a submitted sweep, on every node that it has, and requeue it if it was told to stop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from golf.errors import GolfError
from golf.files import write_atomic
from golf.launch.launcher import run_ranks
from golf.launch.nodes import nodes_of_job
from golf.launch.preflight import check_inputs
from golf.run.attempts import at_work, next_attempt
from golf.run.folder import RunFolder, finished_run
from golf.run.identity import variant_id
from golf.run.locks import Lock, run_lock_name, try_lock
from golf.run.result import INTERRUPTED
from golf.settings.config import Config, from_dict

NOTICE = "SIGUSR2"  # signal that Slurm sends before a time limit, on some sites also before a preemption
OTHERS_WAIT_SECONDS = 120
LOST_NODE_SECONDS = 300
POLL_SECONDS = 0.2


def run_task(job_file: str) -> str:
    """Run the job that `job_file` describes. Return the state of its result, or why it did not run, for Slurm's log.

    The first node locks the run and makes its folder. The other nodes read the folder's path from a note beside the job
    file. A job that was told to stop requeues itself. Slurm requeues jobs that it preempts or loses.
    """
    path = Path(job_file)
    job = json.loads(path.read_text(encoding="utf-8"))
    cfg = from_dict(Config, job["config"])
    if not nodes_of_job(cfg.launch.nodes).is_first:
        return run_ranks(_folder_of_first_node(path)).state
    if (lock := _lock_run(cfg)) is None:
        return "another job or sweep is at work on it"
    with lock:
        if not cfg.launch.fresh and (done := finished_run(variant_id(cfg), cfg.seed)):
            return f"finished before: {done[0].state}"
        check_inputs(cfg)
        # A job that was queued again goes on with its own attempt, also if it was to start from the beginning.
        if restarts():
            cfg.launch.fresh = False
        folder, folder_lock = next_attempt(cfg, job["command"])
        with folder_lock:
            write_atomic(_note(path), str(folder.path))
            result = run_ranks(folder)
    if result.state == INTERRUPTED and NOTICE in result.reason and restarts() < job["requeues"]:
        _requeue()
    return result.state


def _lock_run(cfg: Config) -> Lock | None:
    """Return the lock of the run, or None if another process is at work on it.

    A file system may keep the locks of a lost node for a minute or more, so a job that was queued again waits for them.
    """
    key = variant_id(cfg), cfg.seed
    until = time.monotonic() + (LOST_NODE_SECONDS if restarts() else 0)
    while True:
        if lock := try_lock(run_lock_name(*key)):
            if not at_work(*key):
                return lock
            lock.release()
        if time.monotonic() >= until:
            return None
        time.sleep(POLL_SECONDS)


def restarts() -> int:
    """Return how often Slurm has started this job before."""
    return int(os.environ.get("SLURM_RESTART_COUNT", 0))


def _note(path: Path) -> Path:
    """Return the file through which the first node tells the other nodes the run folder of this start of the job."""
    # A requeued job keeps its number, and must not read the note of its start before.
    return path.with_suffix(f".{os.environ.get('SLURM_JOB_ID', '0')}.{restarts()}.folder")


def _folder_of_first_node(path: Path) -> RunFolder:
    """Wait for the first node's note and return the run folder in it. Raises `GolfError` after two minutes."""
    until = time.monotonic() + OTHERS_WAIT_SECONDS
    while not _note(path).exists():
        if time.monotonic() > until:
            raise GolfError(f"The first node did not start the run within {OTHERS_WAIT_SECONDS} s: see its log.")
        time.sleep(POLL_SECONDS)
    return RunFolder(Path(_note(path).read_text(encoding="utf-8")))


def _requeue() -> None:
    """Put this job back into Slurm's queue."""
    print("told to stop: back into the queue", file=sys.stderr, flush=True)
    subprocess.run(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]], check=False, timeout=60)
    # Slurm ends this process now. Returning before that would end the job as completed instead.
    time.sleep(OTHERS_WAIT_SECONDS)
