"""Take up the jobs of a process that died after Slurm had its jobs and before it wrote their ids down.

Without that the same command would send those runs a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from golf.files import read_json, write_json
from golf.lab.cluster.queue import cancel, jobs_named
from golf.lab.sweep.jobs import Key
from golf.run.folder import runs_root

SENDING = "sending.json"  # exists in a sweep's folder while its jobs are being sent


def note_sending(folder: Path, keys: Sequence[Key]) -> None:
    """Write down in a sweep's `folder` that the runs `keys` are about to be sent, in the order of the job array."""
    write_json(folder / SENDING, [list(key) for key in keys])


def note_sent(folder: Path) -> None:
    """Take the note away: the ids of the jobs are written down, or Slurm has refused them."""
    (folder / SENDING).unlink(missing_ok=True)


def unrecorded_jobs(recorded: set[str]) -> list[tuple[Path, list[dict[str, Any]]]]:
    """Return the folders of sweeps with such a note, each with the lines that `submitted.jsonl` lacks.

    `recorded` has the ids of all jobs that are written down. A job that died with its sender, because submitit had not
    given it its function yet, is cancelled.
    """
    return [(path.parent, _lines(path, recorded)) for path in sorted(runs_root().glob(f"sweeps/*/{SENDING}"))]


def _lines(note: Path, recorded: set[str]) -> list[dict[str, Any]]:
    keys = read_json(note)
    unknown = [job for job in jobs_named(f"golf-{note.parent.name}") if job not in recorded]
    ready = {job for job in unknown if (note.parent / "slurm" / f"{job}_submitted.pkl").exists()}
    cancel(set(unknown) - ready)
    # The index within the array follows the underscore; a single run is a job without an array.
    runs = {job: keys[int(job.partition("_")[2] or 0)] for job in sorted(ready)}
    return [{"variant_id": variant, "seed": seed, "job": job} for job, (variant, seed) in runs.items()]
