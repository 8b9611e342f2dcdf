"""The states of a sweep's runs: from their folders first, then from Slurm, so that no state contradicts a file."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

from golf.errors import GolfError
from golf.jobs.cluster.queue import OPEN, PENDING, job_states
from golf.jobs.cluster.submit import read_submitted
from golf.jobs.sweep.jobs import RUNNING, STOPPED, Key, last_metric, progress_of
from golf.jobs.sweep.record import SweepRecord, read_record, sweep_folder
from golf.run.folder import find_run, finished_run, runs_root

WAITING, LOST, NOT_SENT = "waiting", "lost", "not submitted"


@dataclass(frozen=True)
class RunStatus:
    """The state of one run, for a line of the status table."""

    label: str
    seed: int
    state: str  # state of the result, or running, waiting, lost, not submitted
    detail: str = ""  # score, progress or reason
    job: str = ""  # id of the Slurm job


def find_record(name: str) -> SweepRecord:
    """Return the sweep `name`, or the only one whose name starts so. Raises `GolfError` if there is not exactly one."""
    if record := read_record(name.rstrip("/").rpartition("/")[2]):
        return record
    matches = sorted(path.parent.name for path in runs_root().glob(f"sweeps/{name}*/sweep.json"))
    if len(matches) == 1 and (record := read_record(matches[0])):
        return record
    known = matches or sorted(path.parent.name for path in runs_root().glob("sweeps/*/sweep.json"))
    raise GolfError(f"There is no sweep {name}: {'known are ' + ', '.join(known) if known else 'none has been run'}.")


def sweep_status(record: SweepRecord) -> list[RunStatus]:
    """Return the status of every run of the sweep, in the record's order."""
    sent: dict[Key, str] = dict(read_submitted(sweep_folder(record.name) / "submitted.jsonl"))
    unfinished = {key: job for key, job in sent.items() if not finished_run(*key)}
    slurm = job_states(unfinished.values())
    common = set.intersection(*(set(run["overrides"]) for run in record.runs)) if len(record.runs) > 1 else set()
    lines = []
    for run in record.runs:
        key, said = (run["variant_id"], run["seed"]), [o for o in run["overrides"] if o not in common]
        label = " ".join(o for o in said if not o.startswith("seed=")) or run["name"]
        lines.append(_status(label, key, sent.get(key, ""), slurm))
    return lines


def _status(label: str, key: Key, job: str, slurm: dict[str, str]) -> RunStatus:
    """Return the status of a run. `job` is its Slurm job, empty if it was not sent; `slurm` has the states of jobs."""
    if done := finished_run(*key):
        result = done[0]
        score = f"{result.final_score.val_bpb:.4f} bpb" if result.final_score else result.reason
        return RunStatus(label, key[1], result.state, score, job)
    state = slurm.get(job, "")
    progress = progress_of(key)
    # A lock may be invisible from here, where the file system does not carry locks between machines: a job that Slurm
    # runs and that has made its folder is running, too.
    if progress == RUNNING or (state in OPEN and state != PENDING and find_run(*key)):
        return RunStatus(label, key[1], RUNNING, _how_far(key), job)
    if state in OPEN:
        return RunStatus(label, key[1], WAITING, state.lower(), job)
    if progress == STOPPED and (reason := _reason(key)):
        return RunStatus(label, key[1], reason[0], reason[1], job)
    if job:
        why = f"Slurm says {state}" if state else "Slurm knows it no more (cancelled while it waited?)"
        return RunStatus(label, key[1], LOST, f"{why}, and it left no result: submit again", job)
    return RunStatus(label, key[1], NOT_SENT)


def _reason(key: Key) -> tuple[str, str] | None:
    """Return state and reason of an attempt that was cut short; None if it left none."""
    folder = find_run(*key)
    try:
        values = json.loads(folder.result.read_text()) if folder else {}
        return values["state"], values["reason"]
    except (OSError, ValueError, LookupError):
        return None


def _how_far(key: Key) -> str:
    """Return step, seconds and loss of a running run."""
    folder = find_run(*key)
    if folder is None:
        return "starting"
    last = last_metric(folder)
    if "step" not in last:
        return "starting"
    loss = f", loss {last['train_loss']:.4f}" if last.get("train_loss") else ""
    return f"step {last['step']}, {last.get('train_seconds', 0):.0f} s{loss}"


def counts(lines: list[RunStatus]) -> str:
    """Return the number of runs in each state, such as `3 ok, 1 running, 2 waiting`."""
    return ", ".join(f"{n} {state}" for state, n in Counter(line.state for line in lines).most_common())
