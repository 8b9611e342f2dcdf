"""The record of a sweep, `<runs root>/sweeps/<name>/sweep.json`: the list of its runs. Results are in the run folders.

The name is computed from the command alone, so the same command finds its record again, also on another machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from golf.errors import GolfError
from golf.files import DAMAGED, read_json, write_json
from golf.lab.sweep.jobs import Job, Refused
from golf.run.sweeps import sweep_folder
from golf.settings.bundles import key_of

REFERENCE_KINDS = ("leave_one_out", "add_one", "interaction")  # tables compare the others with the first variant


@dataclass
class SweepRecord:
    """The content of `sweep.json`."""

    name: str
    command: list[str]
    created: str  # time at which this command was first given, ISO 8601 in UTC
    # Id of the variant that tables compare the others with; empty for a table without one, None for the first variant.
    reference: str | None = None
    swept: list[str] = field(default_factory=list)  # settings that vary, besides the seed
    kind: str = "grid"  # one of grid, seeds, leave_one_out, add_one, interaction
    runs: list[dict[str, Any]] = field(default_factory=list)  # distinct runs: overrides, variant_id, seed, name
    refused: list[dict[str, Any]] = field(default_factory=list)  # invalid combinations: overrides, error
    sequential: dict[str, Any] | None = None  # plan of a sweep in rounds (`SequentialPlan`)


def read_record(name: str) -> SweepRecord | None:
    """Return the record of sweep `name`; None if there is none yet. Raises `GolfError` if it cannot be read."""
    path = sweep_folder(name) / "sweep.json"
    try:
        return SweepRecord(**read_json(path))
    except FileNotFoundError:
        return None
    except DAMAGED as error:
        raise GolfError(f"{path} is not a sweep of this version of golf ({error}).") from error


def write_record(record: SweepRecord) -> None:
    """Write `sweep.json`."""
    write_json(sweep_folder(record.name) / "sweep.json", dataclasses.asdict(record))


@contextlib.contextmanager
def taken_back_unless_sent(name: str) -> Iterator[None]:
    """Take the record of sweep `name` back if the block, which sends its jobs, raises before any job was sent.

    A record from before the block stays.
    """
    folder = sweep_folder(name)
    was_there = (folder / "sweep.json").exists()
    try:
        yield
    except GolfError:
        if not was_there and not (folder / "submitted.jsonl").exists():
            (folder / "sweep.json").unlink(missing_ok=True)
        raise


def make_record(
    name: str, command: Sequence[str], jobs: Sequence[Job], refused: Sequence[Refused], before: SweepRecord | None
) -> SweepRecord:
    """Return the record of distinct `jobs`. `before` is the record of an earlier start of the same command."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    # A sweep that is continued keeps the time of its first start.
    record = SweepRecord(name, list(command), before.created if before else now)
    record.kind = sweep_kind(jobs)
    record.reference = _reference(jobs, record.kind)
    named = ((job, dict(zip(("variant_id", "seed"), job.key, strict=True))) for job in jobs)
    record.runs = [{"overrides": list(job.overrides), **key, "name": job.cfg.name} for job, key in named]
    record.refused = [{"overrides": list(r.overrides), "error": r.sentence} for r in refused]
    record.swept = _swept(record)
    return record


def extended(record: SweepRecord, later: SweepRecord) -> SweepRecord:
    """Return `record` with the runs of a later batch added: a sweeper that searches asks for its runs in batches."""
    known = {(run["variant_id"], run["seed"]) for run in record.runs}
    # A sweeper that searches may ask for the same run again.
    new = [run for run in later.runs if (run["variant_id"], run["seed"]) not in known]
    whole = dataclasses.replace(record, runs=[*record.runs, *new], refused=[*record.refused, *later.refused])
    # Of the whole: a later batch may be two bundles that name the same settings.
    return dataclasses.replace(whole, swept=_swept(whole))


def _swept(record: SweepRecord) -> list[str]:
    """Return the settings that vary, besides the seed; none for bundles, whose configurations tell what differs."""
    runs = [run["overrides"] for run in record.runs]
    if any({key_of(o) for o in overrides} != {key_of(o) for o in runs[0]} for overrides in runs):
        return []
    # Refused runs are rows of the table, too: a sweep of two values of which one is refused is still over them.
    return [key for key in varied_settings([*runs, *(run["overrides"] for run in record.refused)]) if key != "seed"]


def varied_settings(runs: Iterable[Sequence[str]]) -> list[str]:
    """Return the keys of overrides whose values differ between `runs`."""
    values: dict[str, set[str]] = {}
    for overrides in runs:
        for key, _, value in (o.partition("=") for o in overrides):
            values.setdefault(key.lstrip("+"), set()).add(value)
    return [key for key, choices in values.items() if len(choices) > 1]


def sweep_kind(jobs: Sequence[Job]) -> str:
    """Return the configured kind of the sweep, else seeds, leave_one_out, add_one or grid, by what varies."""
    if not jobs:
        return "grid"
    if kind := jobs[0].cfg.sweep.kind:
        return kind
    varied = set(varied_settings(job.overrides for job in jobs)) - {"seed"}
    if varied == {"drop"}:
        first = jobs[0].cfg.drop
        if not first:
            return "leave_one_out"
        # Where the first one drops what any other does, each other one brings something back.
        if all(set(job.cfg.drop) <= set(first) for job in jobs):
            return "add_one"
    return "seeds" if not varied and len(jobs) > 1 else "grid"


def _reference(jobs: Sequence[Job], kind: str) -> str | None:
    """Return the id of the variant that tables compare with, empty for none; None leaves it to the tables."""
    if not jobs:
        return None
    said = jobs[0].cfg.sweep.reference or ("first" if kind in REFERENCE_KINDS else None)
    return {"first": jobs[0].key[0], "none": "", None: None}[said]
