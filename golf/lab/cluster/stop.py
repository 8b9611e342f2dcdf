"""Stop single runs wherever they are at work: here, in a job of Slurm, or on a rented machine."""

from __future__ import annotations

import time
from pathlib import Path

from golf.errors import GolfError
from golf.files import write_atomic
from golf.lab.cluster.batch import Batch, is_rented, owners, read_heard
from golf.lab.cluster.bring import bring
from golf.lab.cluster.queue import PENDING, cancel, end_gently, job_states
from golf.lab.cluster.rented import request
from golf.lab.cluster.submit import queued_runs
from golf.lab.sweep.jobs import Key
from golf.launch.stop import PATIENCE_SECONDS, POLL_SECONDS, let_go_on, stop_here
from golf.run.attempts import at_work
from golf.run.folder import RunFolder, attempts, find_run, runs_root, state_of
from golf.run.result import ENDED


def key_of(folder: Path) -> Key:
    """Return variant id and seed of a run folder. Raises `GolfError` for one that lies outside of the runs root."""
    # The name is `<name>-<variant id>/seed<k>[.n]`.
    key = folder.parent.name.rpartition("-")[2], int(folder.name.removeprefix("seed").partition(".")[0])
    if folder.resolve() not in [attempt.path.resolve() for attempt in attempts(*key)]:
        raise GolfError(f"{folder} is no run of {runs_root()}: GOLF_RUNS=… names the folder that has it.")
    return key


def stop_run(key: Key) -> tuple[Path, str]:
    """Stop a run. Return its folder and state: `stopped`, or the one that it had ended with before.

    Raises `GolfError` if the machine that has it does not answer, or if it does not end.
    """
    if here := at_work(*key):
        return here.path, _stop_in_job(key, here) or stop_here(here)
    folder = _found(key)
    if state_of(folder) in ENDED:
        return folder.path, state_of(folder)
    if machine := _machine_of(key):
        machine.line.ask(f"{machine.script} stop", request({"keys": [key]}))
        for sentence in bring(machine.sweep):
            raise GolfError(sentence)
        if state_of(folder := _found(key)) not in ENDED:
            raise GolfError(f"{folder.path} has not started again on {machine.host}: golf stop ends it once it has.")
        return folder.path, state_of(folder)
    return folder.path, _stop_in_job(key, folder) or stop_here(folder)


def resume_run(key: Key) -> int:
    """Let the same command go on with a run that was stopped. Return how many of its attempts were."""
    there, machine = 0, _machine_of(key)
    if machine:
        # Else the follower would bring the state home again.
        there = machine.line.ask(f"{machine.script} let_go_on", request({"keys": [key]}))
    return max(there, let_go_on(attempts(*key)))


def _stop_in_job(key: Key, folder: RunFolder) -> str:
    """Stop the attempt in its job of Slurm and return its state; empty if no job is at work on it."""
    job = queued_runs().get(key)
    if job is None or is_rented(job):
        return ""
    if job_states([job])[job].name == PENDING:
        cancel([job])
        return ""
    write_atomic(folder.stop, "")
    end_gently(job)
    until = time.monotonic() + PATIENCE_SECONDS
    while state_of(folder) not in ENDED:
        if time.monotonic() > until:
            raise GolfError(f"Job {job} has not ended within {PATIENCE_SECONDS:.0f} s: scancel {job} ends it.")
        time.sleep(POLL_SECONDS)
    return state_of(folder)


def _found(key: Key) -> RunFolder:
    folder = find_run(*key)
    assert folder, "a key comes from a folder"
    return folder


def _machine_of(key: Key) -> Batch | None:
    """Return the batch that has the run on a rented machine, None if nothing more comes home of it."""
    batch = owners().get(key)
    heard = read_heard(batch) if batch else None
    return batch if heard and not (heard.is_home or heard.is_lost) else None
