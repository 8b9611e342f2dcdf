"""Copy a run folder to one run of W&B, from its first metric to its summary, while the run goes on or afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from golf.lab.track.keys import config_values, history_row, summary_values, sweep_of
from golf.lab.track.mirror_record import MirrorRecord
from golf.lab.track.wandb_client import leave_agent, open_run
from golf.run.folder import RunFolder
from golf.run.result import OK
from golf.settings.jobs_config import TrackConfig

POLL_SECONDS = 2.0
CHARTS, DEFAULT_AXIS = ("train/*", "val/*"), "train_seconds"


def stream(
    folder: RunFolder,
    track: TrackConfig,
    record: MirrorRecord,
    has_ended: Callable[[float], bool],
    sampled_process: int | None = None,
) -> None:
    """Mirror the run in `folder` and return when all of it is uploaded, or recorded with `track.mode=offline`.

    `has_ended(seconds)` waits up to that long for the run's end. `sampled_process` is the process whose use of the
    machine is recorded, if the run has not ended. Raises `TrackError` if a part did not arrive.
    """
    # A back-filled run has no process to sample any more: its id may belong to another process by now.
    sampled = None if has_ended(0.0) or not track.system_metrics else sampled_process
    if sweep_of(folder.path):
        leave_agent()
    run = open_run(track, folder.path, sampled_process=sampled, **description(folder.path, track, record.id))
    # A single run under a sweep agent has the agent's id.
    record.id = run.id
    record.url, record.files = run.url, str(run.files.relative_to(folder.path))
    record.write(folder.path)
    run.set_axis(CHARTS, DEFAULT_AXIS)
    tail, is_over = Tail(folder.metrics), False
    while not is_over:
        # Asked before the file is read: what was written up to the end is then in the last reading.
        is_over = has_ended(POLL_SECONDS)
        for event in tail.new_events():
            run.log(history_row(event))
    summary = summary_values(folder.path)
    run.finish(summary, attached(folder, track.attach), exit_code=int(summary["state"] != OK))


def description(folder: Path, track: TrackConfig, id: str) -> dict[str, Any]:
    """Return the arguments of `wandb.init` that describe a run."""
    config = config_values(folder)
    labels = (config.get("scale/name"), config.get("data/name"), *config["tech"], *track.tags)
    return {
        "id": id,
        "name": f"{config.get('name', folder.parent.name)} {folder.name}",
        "group": track.group or sweep_of(folder) or config["variant"],
        "job_type": "train",
        "tags": [str(label) for label in labels if label],
        "notes": config.get("note") or None,
        "config": config,
    }


def attached(folder: RunFolder, wanted: list[str]) -> list[Path]:
    """Return the files that `track.attach` names, without those that do not exist."""
    paths = {
        "config": folder.path / "config.yaml",
        "log": folder.train_log,
        "curves": folder.curves,
        "artifact": folder.artifact,
    }
    return [paths[name] for name in wanted if paths[name].exists()]


class Tail:
    """A reader that follows a growing file of JSON lines and returns each line once, as soon as it is complete."""

    def __init__(self, path: Path):
        self.path, self._read = path, 0

    def new_events(self) -> list[dict[str, Any]]:
        """Return the objects of the lines since the last call. Lines that are not JSON are left out."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                lines = file.read()
        except FileNotFoundError:
            return []
        # A line without its line feed is still being written, and is read again next time.
        complete = lines[: lines.rfind(b"\n") + 1]
        self._read += len(complete)
        events = []
        for line in complete.splitlines():
            try:
                events.append(json.loads(line))
            except ValueError:
                continue
        return [event for event in events if isinstance(event, dict) and "event" in event]
