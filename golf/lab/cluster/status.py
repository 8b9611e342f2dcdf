"""The states of a sweep's runs: from their folders first, then from Slurm, so that no state contradicts a file."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from golf.errors import GolfError
from golf.files import DAMAGED, read_json, read_object
from golf.lab.cluster.batch import follower_lock
from golf.lab.cluster.ending import LOST as LOST
from golf.lab.cluster.ending import ending, last_words
from golf.lab.cluster.queue import PENDING, JobState, job_states
from golf.lab.cluster.state import UNREACHABLE
from golf.lab.cluster.submit import read_submitted
from golf.lab.report.rows import UNREADABLE
from golf.lab.report.store import find_record as find_any_record
from golf.lab.report.store import sweep_names
from golf.lab.sweep.jobs import KILLED, RUNNING, Key, last_metric, progress_of
from golf.lab.sweep.record import SweepRecord, read_record
from golf.run.folder import NOT_SCORED, find_run, finished_run, runs_root
from golf.run.locks import is_locked
from golf.run.result import FINAL
from golf.run.sweeps import sweep_folder, sweep_lock_name

WAITING, NOT_STARTED, UNKNOWN = "waiting", "not started", "unknown"


@dataclass(frozen=True)
class RunStatus:
    """The state of one run, for a line of the status table."""

    label: str
    seed: int
    state: str  # state of the result, or running, waiting, killed, unreadable, failed, lost, not started, unknown
    detail: str = ""  # score, progress or reason
    job: str = ""  # id of the job of Slurm or of a rented machine
    variant_id: str = ""
    folder: Path | None = None  # of the latest attempt; None before the run starts


def find_record(name: str) -> SweepRecord:
    """Return the sweep `name`, or the only one whose name starts so. Raises `GolfError` if there is not exactly one."""
    name = name.rstrip("/").rpartition("/")[2]
    if (found := find_any_record(name, runs_root())) and (record := read_record(found["name"])):
        return record
    known = ", ".join(sweep_names(runs_root()))
    raise GolfError(f"There is no sweep {name}: {f'known are {known}' if known else 'none has been run'}.")


def sweep_status(record: SweepRecord) -> list[RunStatus]:
    """Return the status of every run of the sweep, in the record's order."""
    # The file has its oldest line first, so a run that was sent again stands under its latest job.
    sent: dict[Key, str] = dict(read_submitted(sweep_folder(record.name) / "submitted.jsonl"))
    # A result on the disk says more than Slurm, so Slurm is asked about the other runs only.
    unfinished = {key: job for key, job in sent.items() if not finished_run(*key)}
    slurm: dict[str, JobState] | str
    try:
        slurm = job_states(unfinished.values())
    except GolfError as error:
        slurm = str(error)
    common = set.intersection(*(set(run["overrides"]) for run in record.runs)) if record.runs else set()
    lines = []
    for run in record.runs:
        key, said = (run["variant_id"], run["seed"]), [o for o in run["overrides"] if o not in common]
        label = " ".join(o for o in said if not o.startswith("seed=")) or run["name"]
        job = sent.get(key, "")
        state, detail = _status(key, job, slurm, sweep_folder(record.name) / "slurm")
        folder = done[1] if (done := finished_run(*key)) else find_run(*key)
        lines.append(RunStatus(label, key[1], state, detail, job, key[0], folder.path if folder else None))
    return lines


def _status(key: Key, job: str, slurm: dict[str, JobState] | str, logs: Path) -> tuple[str, str]:
    """Return state and detail of a run.

    `job` is its Slurm job, empty if it was not sent; `slurm` has the states of jobs or the reason why it has none.
    """
    if done := finished_run(*key):
        result = done[0]
        return result.state, (f"{result.final_score.val_bpb:.4f} bpb" if result.final_score else result.reason)
    state = slurm.get(job) if isinstance(slurm, dict) else None
    progress = progress_of(key)
    if state and state.name == UNREACHABLE:
        return UNKNOWN, "; ".join(filter(None, (_how_far(key) if find_run(*key) else "", state.reason)))
    # A lock may be invisible from here, where the file system does not carry locks between machines: a job that Slurm
    # runs and that has made its folder is running, too.
    if progress == RUNNING or (state and state.is_open and state.name != PENDING and find_run(*key)):
        return RUNNING, "; ".join(filter(None, (_how_far(key), _expected(key))))
    if state and state.is_open:
        return WAITING, state.name.lower() + (f", {state.reason}" if state.reason not in ("", "None") else "")
    if progress == KILLED and (reason := _reason(key)):
        return reason
    if job and isinstance(slurm, str):
        said = last_words(job, logs)
        return UNKNOWN, f"{slurm}; its log ends with {said}" if said else slurm
    if job:
        return ending(job, state, logs)
    return (KILLED, _how_far(key)) if progress == KILLED else (NOT_STARTED, "")


def _reason(key: Key) -> tuple[str, str] | None:
    """Return state and reason of an attempt that was cut short or cannot be read; None if it left no result."""
    folder = find_run(*key)
    if not folder or not folder.result.exists():
        return None
    with contextlib.suppress(*DAMAGED):
        values = read_json(folder.result)
        if values["state"] not in FINAL:
            # A job with requeues left waits in the queue again.
            told = ", Slurm's notice of an early end: submit again" if "SIGUSR2" in values["reason"] else ""
            return values["state"], values["reason"] + told
    return UNREADABLE, "result.json is damaged or of another version; the same command runs it again"


def _how_far(key: Key) -> str:
    """Return step, seconds and loss of a run as far as it has come."""
    folder = find_run(*key)
    if folder and folder.is_trained:
        return NOT_SCORED
    last = last_metric(folder) if folder else {}
    if "step" not in last:
        return "starting"
    loss = f", loss {last['train_loss']:.4f}" if last.get("train_loss") else ""
    return f"step {last['step']}, {last.get('train_seconds', 0):.0f} s{loss}"


def _expected(key: Key) -> str:
    """Return how far a run is from what it should be, if its setting `expect` names that."""
    if not (folder := find_run(*key)) or not read_object(folder.config).get("expect"):
        return ""
    # It composes, which few sweeps need here.
    from golf.lab.report.expectation import about_expected

    return about_expected(folder.path)


def is_at_work(name: str, lines: Sequence[RunStatus]) -> bool:
    """Tell whether runs of sweep `name` are at work, or a process or a job that will start more of them."""
    locks = sweep_lock_name(name), follower_lock(name)
    if any(line.state in (RUNNING, WAITING) for line in lines) or any(map(is_locked, locks)):
        return True
    # It imports torch, which takes seconds, and few sweeps are on a cluster.
    if not (sweep_folder(name) / "waves.jsonl").exists():
        return False
    from golf.lab.cluster.waves import waiting_controller

    return waiting_controller(name) is not None


def counts(lines: list[RunStatus]) -> str:
    """Return the number of runs in each state, such as `3 ok, 1 running, 2 waiting`."""
    return ", ".join(f"{n} {state}" for state, n in Counter(line.state for line in lines).most_common()) or "no run"
