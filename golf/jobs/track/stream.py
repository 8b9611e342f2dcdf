"""A run folder into one run of W&B, from its first line to its summary, while it grows or afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from golf.jobs.track.keys import config_values, history_row, summary_values, sweep_of
from golf.jobs.track.record import Record, write_record
from golf.jobs.track.wandb_client import open_run
from golf.run.folder import RunFolder
from golf.run.result import OK
from golf.settings.config import TrackConfig

POLL_SECONDS = 2.0
CHARTS, DEFAULT_AXIS = ("train/*", "val/*"), "train_seconds"


def stream(
    folder: RunFolder,
    track: TrackConfig,
    record: Record,
    has_ended: Callable[[float], bool],
    sampled_process: int | None = None,
) -> None:
    """Returns when all of it is where `track.mode` says; `has_ended(seconds)` waits that long for the run's end.

    Raises `TrackError` if something did not arrive.
    """
    sampled = None if has_ended(0.0) or not track.system_metrics else sampled_process
    run = open_run(track, folder.path, sampled_process=sampled, **description(folder.path, track, record.id))
    record.url, record.files = run.url, str(run.files.relative_to(folder.path))
    write_record(folder.path, record)
    run.set_axis(CHARTS, DEFAULT_AXIS)
    tail, is_over = Tail(folder.metrics), False
    while not is_over:
        is_over = has_ended(POLL_SECONDS)
        for event in tail.new_events():
            run.log(history_row(event))
    summary = summary_values(folder.path)
    run.finish(summary, attached(folder, track.attach), exit_code=int(summary["state"] != OK))


def description(folder: Path, track: TrackConfig, id: str) -> dict[str, Any]:
    """What `wandb.init` is told about a run besides where it goes."""
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
    """The files that `track.attach` asks for, as far as they are there."""
    paths = {
        "config": folder.path / "config.yaml",
        "log": folder.train_log,
        "curves": folder.curves,
        "artifact": folder.artifact,
    }
    return [paths[name] for name in wanted if paths[name].exists()]


class Tail:
    """Each line of `path` once, as soon as it is complete."""

    def __init__(self, path: Path):
        self.path, self._read = path, 0

    def new_events(self) -> list[dict[str, Any]]:
        """The objects of the lines since the last call; a line that is not JSON is left out."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                complete = file.read().rpartition(b"\n")[0]
        except FileNotFoundError:
            return []
        self._read += len(complete) + bool(complete)
        events = []
        for line in complete.splitlines():
            try:
                events.append(json.loads(line))
            except ValueError:
                continue
        return [event for event in events if isinstance(event, dict) and "event" in event]
