"""The record of a sweep, `<runs root>/sweeps/<name>/sweep.json`: which runs it wants. How they went, their folders say.

The name comes from the command alone, so the same command finds its own record again, here or on another machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from golf.errors import GolfError
from golf.files import write_json
from golf.jobs.sweep.jobs import Job, Refused
from golf.run.folder import runs_root

# Flags, and settings that cannot change results.
NOT_IN_NAME = re.compile(
    r"-|\+*(launch|rules|sweep|track|note|cluster)\.|\+*(rules|track|cluster|hydra/launcher|hydra/sweeper)="
)
REFERENCE_KINDS = ("leave_one_out", "add_one", "quant_gap")  # their first variant is what the others compare with
LABEL_LENGTH = 40


@dataclass
class SweepRecord:
    """`reference` is the variant that tables compare with; `swept` are the settings that vary besides the seed."""

    name: str
    command: list[str]
    created: str  # ISO 8601, UTC, of the first time this command was given
    reference: str | None = None
    swept: list[str] = field(default_factory=list)
    kind: str = "grid"
    runs: list[dict[str, Any]] = field(default_factory=list)  # overrides, variant_id, seed, name; each run once
    refused: list[dict[str, Any]] = field(default_factory=list)  # overrides, error: combinations that make no run


def sweep_folder(name: str) -> Path:
    return runs_root() / "sweeps" / name


def sweep_name(label: str, arguments: Iterable[str]) -> str:
    """`label` and a hash of the arguments, whatever their order, without those that cannot change a result."""
    said = sorted(a for a in arguments if not NOT_IN_NAME.match(a))
    digest = hashlib.sha256("\0".join(said).encode()).hexdigest()[:8]
    word = re.sub(r"[^\w.]+", "_", label)[:LABEL_LENGTH].strip("_") or "sweep"
    return f"{'by_' * word.startswith('seed')}{word}-{digest}"  # */seed* are folders of runs


def read_record(name: str) -> SweepRecord | None:
    """None if there is no such sweep yet."""
    path = sweep_folder(name) / "sweep.json"
    try:
        return SweepRecord(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise GolfError(f"{path} is not a sweep of this version of golf ({error}).") from error


def write_record(record: SweepRecord) -> Path:
    path = sweep_folder(record.name) / "sweep.json"
    write_json(path, dataclasses.asdict(record))
    return path


def discard_unused(name: str) -> None:
    """Remove what Hydra wrote for a sweep that never had a run, and the folders made for it."""
    folder = sweep_folder(name)
    if not (folder / "sweep.json").exists():
        with contextlib.suppress(OSError):
            (folder / "multirun.yaml").unlink(missing_ok=True)
            for path in (folder, folder.parent, runs_root()):
                path.rmdir()  # fails where something else is in it


def make_record(
    name: str, command: Sequence[str], jobs: Sequence[Job], refused: Sequence[Refused], before: SweepRecord | None
) -> SweepRecord:
    """The record of distinct `jobs`; `before` is the one of an earlier start of the same command."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    record = SweepRecord(name, list(command), before.created if before else now)
    record.swept = [key for key in varied_settings(jobs) if key != "seed"]
    record.kind = sweep_kind(jobs)
    record.reference = _reference(jobs, record.kind)
    record.runs = [
        {"overrides": list(job.overrides), "variant_id": job.key[0], "seed": job.key[1], "name": job.cfg.name}
        for job in jobs
    ]
    record.refused = [{"overrides": list(r.overrides), "error": r.sentence} for r in refused]
    return record


def extended(record: SweepRecord, later: SweepRecord) -> SweepRecord:
    """`record` and the runs of a later batch: a sweeper that searches asks for its runs little by little."""
    known = {(run["variant_id"], run["seed"]) for run in record.runs}
    new = [run for run in later.runs if (run["variant_id"], run["seed"]) not in known]
    swept = list(dict.fromkeys([*record.swept, *later.swept]))
    return dataclasses.replace(
        record, runs=[*record.runs, *new], refused=[*record.refused, *later.refused], swept=swept
    )


def varied_settings(jobs: Sequence[Job]) -> list[str]:
    """Keys of the overrides that are not the same in all of `jobs`."""
    values: dict[str, set[str]] = {}
    for job in jobs:
        for key, _, value in (o.partition("=") for o in job.overrides):
            values.setdefault(key.lstrip("+"), set()).add(value)
    return [key for key, found in values.items() if len(found) > 1]


def sweep_kind(jobs: Sequence[Job]) -> str:
    """What the configuration says, else what the varied settings tell: seeds, leave_one_out or grid."""
    if not jobs:
        return "grid"
    if kind := jobs[0].cfg.sweep.kind:
        return kind
    varied = set(varied_settings(jobs)) - {"seed"}
    if varied == {"drop"} and not jobs[0].cfg.drop:
        return "leave_one_out"
    return "seeds" if not varied and len(jobs) > 1 else "grid"


def _reference(jobs: Sequence[Job], kind: str) -> str | None:
    if not jobs:
        return None
    said = jobs[0].cfg.sweep.reference or ("first" if kind in REFERENCE_KINDS else "none")
    return jobs[0].key[0] if said == "first" else None
