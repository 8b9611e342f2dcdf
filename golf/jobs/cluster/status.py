"""How the runs of a sweep stand: their folders first, then Slurm, so that nothing is said that a file contradicts."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from golf.errors import GolfError
from golf.jobs.cluster.queue import OPEN, PENDING, job_states
from golf.jobs.cluster.submit import read_submitted
from golf.jobs.sweep.jobs import RUNNING, STOPPED, Key, progress_of
from golf.jobs.sweep.record import SweepRecord, read_record, sweep_folder
from golf.run.folder import find_run, finished_run, runs_root

TAIL_BYTES = 4096
WAITING, LOST, NOT_SENT = "waiting", "lost", "not submitted"


@dataclass(frozen=True)
class RunStatus:
    """One run: a result's state, or running, waiting, lost, not submitted; `detail` says how far or why."""

    label: str
    seed: int
    state: str
    detail: str = ""
    job: str = ""


def find_record(name: str) -> SweepRecord:
    """The sweep of that name, or the only one whose name starts so. Raises `GolfError`."""
    if record := read_record(name.rstrip("/").rpartition("/")[2]):
        return record
    matches = sorted(path.parent.name for path in runs_root().glob(f"sweeps/{name}*/sweep.json"))
    if len(matches) == 1 and (record := read_record(matches[0])):
        return record
    known = matches or sorted(path.parent.name for path in runs_root().glob("sweeps/*/sweep.json"))
    raise GolfError(f"There is no sweep {name}: {'known are ' + ', '.join(known) if known else 'none has been run'}.")


def sweep_status(record: SweepRecord) -> list[RunStatus]:
    """A line for every run of the sweep, in its order."""
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
    if done := finished_run(*key):
        result = done[0]
        score = f"{result.final_score.val_bpb:.4f} bpb" if result.final_score else result.reason
        return RunStatus(label, key[1], result.state, score, job)
    state = slurm.get(job, "")
    progress = progress_of(key)
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
    """State and reason of an attempt that was cut short and could say so."""
    folder = find_run(*key)
    try:
        values = json.loads(folder.result.read_text()) if folder else {}
        return values["state"], values["reason"]
    except (OSError, ValueError, LookupError):
        return None


def _how_far(key: Key) -> str:
    folder = find_run(*key)
    if folder is None:
        return "starting"
    last = _last_metric(folder.metrics)
    if "step" not in last:
        return "starting"
    loss = f", loss {last['train_loss']:.4f}" if last.get("train_loss") else ""
    return f"step {last['step']}, {last.get('train_seconds', 0):.0f} s{loss}"


def _last_metric(path: Path) -> dict:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            whole = file.read().rpartition(b"\n")[0]
        return json.loads(whole.rpartition(b"\n")[2])
    except (OSError, ValueError):
        return {}


def counts(lines: list[RunStatus]) -> str:
    """Such as `3 ok, 1 running, 2 waiting`."""
    return ", ".join(f"{n} {state}" for state, n in Counter(line.state for line in lines).most_common())
