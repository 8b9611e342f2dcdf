"""Names and folders of sweeps, and the outcome of each of their jobs. A command for a single run is a sweep of one."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from golf.run.folder import runs_root
from golf.run.result import Result
from golf.settings.jobs_config import TrackConfig

# Flags and settings that cannot change results: a sweep that resumes on another cluster or with another tracker is the
# same sweep.
NOT_IN_NAME = re.compile(
    r"-|\+*(launch|rules|track|note|cluster)\.|\+*sweep\.(?!until=)|\+*(rules|track|cluster|hydra/launcher|hydra/sweeper)="
)
LABEL_LENGTH = 40


class Row(NamedTuple):
    """The outcome of one job: its result, or the error in place of one."""

    overrides: Sequence[str]
    result: Result | None
    error: str = ""
    track: TrackConfig | None = None  # tracker that the run was mirrored to


def sweep_folder(name: str) -> Path:
    """Return the folder of sweep `name`."""
    return runs_root() / "sweeps" / name


def sweep_lock_name(name: str) -> str:
    """Return the name of the lock that a process holds while it runs jobs of sweep `name` on this machine."""
    return f"sweep-{name}"


def sweep_name(label: str, arguments: Iterable[str]) -> str:
    """Return `label` and a hash of the arguments in any order, without those that cannot change a result."""
    said = sorted(a for a in arguments if not NOT_IN_NAME.match(a))
    digest = hashlib.sha256("\0".join(said).encode()).hexdigest()[:8]
    word = re.sub(r"[^\w.]+", "_", label)[:LABEL_LENGTH].strip("_") or "sweep"
    # Readers take every folder that matches */seed* for a run.
    return f"by_{word}-{digest}" if word.startswith("seed") else f"{word}-{digest}"


def discard_unused(name: str) -> None:
    """Remove the folders of a sweep that never had a run, with the file that Hydra writes there."""
    folder = sweep_folder(name)
    if not (folder / "sweep.json").exists():
        with contextlib.suppress(OSError):
            (folder / "multirun.yaml").unlink(missing_ok=True)
            # rmdir fails, as it should, on a folder with anything else in it.
            for path in (folder, folder.parent, runs_root()):
                path.rmdir()
