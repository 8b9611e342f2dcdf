"""Follow the jobs of submitted sweeps for a page that is left open, without waiting for Slurm."""

from __future__ import annotations

import threading
import time
from typing import Any

from golf.errors import GolfError
from golf.lab.cluster.batch import about_follower
from golf.lab.cluster.ending import FAILED, LOST
from golf.lab.cluster.status import NOT_STARTED, UNKNOWN, WAITING, sweep_status
from golf.lab.sweep.jobs import KILLED, RUNNING
from golf.lab.sweep.record import read_record
from golf.run.sweeps import sweep_folder

REFRESH_SECONDS = 15  # Slurm serves many users: one question about a sweep in this time
WITHOUT_RESULT = (RUNNING, WAITING, KILLED, NOT_STARTED, UNKNOWN, FAILED, LOST)
NOTHING: dict[str, Any] = {"runs": [], "about": ""}


class SweepJobs:
    """States of the jobs of submitted sweeps as they were at most some seconds ago."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Any]] = {}
        self._asked_at: dict[str, float] = {}  # time.monotonic() of the last question about a sweep

    def latest(self, name: str) -> dict[str, Any]:
        """Return the runs of sweep `name` without a result and a sentence on its rounds, as far as they are known.

        Nothing is known of a sweep on this machine, and at first of any. Slurm is asked by a thread, because an answer
        may take a minute.
        """
        if not (sweep_folder(name) / "submitted.jsonl").exists():
            return NOTHING
        if time.monotonic() - self._asked_at.get(name, -REFRESH_SECONDS) >= REFRESH_SECONDS:
            self._asked_at[name] = time.monotonic()
            threading.Thread(target=self._ask, args=(name,), daemon=True).start()
        return self._known.get(name, NOTHING)

    def _ask(self, name: str) -> None:
        try:
            self._known[name] = states(name)
        except GolfError as error:
            self._known[name] = {"runs": [], "about": str(error)}


def states(name: str) -> dict[str, Any]:
    """Return the runs of sweep `name` without a result, with the state of their jobs, and a sentence on its rounds."""
    # It imports torch, which takes longer than the rest of a page's start, and few sweeps are on a cluster.
    from golf.lab.cluster.waves import about_waves

    if (record := read_record(name)) is None:
        return NOTHING
    lines = zip(record.runs, sweep_status(record), strict=True)
    runs = [
        {
            "variant": run["variant_id"],
            "name": line.label,
            "seed": line.seed,
            "state": line.state,
            "detail": ", ".join(filter(None, (line.detail, line.job and f"job {line.job}"))),
        }
        for run, line in lines
        if line.state in WITHOUT_RESULT
    ]
    return {"runs": runs, "about": "; ".join(filter(None, (about_waves(name), about_follower(name))))}
