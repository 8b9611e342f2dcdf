"""Open a run of W&B, log to it, and check that everything arrived. This is the only module that imports wandb."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from golf.errors import GolfError
from golf.settings.jobs_config import TrackConfig

# Set before the import: otherwise even offline runs look up a telemetry host.
os.environ.setdefault("WANDB_ERROR_REPORTING", "false")

import wandb

OWN_SECONDS = 600.0  # time for the client's own process, which starts for minutes on a loaded machine
FLUSH_SECONDS = 2.0  # time between flushes of the local file, which a killed process loses
MAX_TAG_CHARS = 64
# Beginnings of log messages: single attempts, which the uploader repeats, and telemetry.
HARMLESS_ERRORS = ("api:", "stream: failed to shut down analytics")


class TrackError(GolfError):
    """The error for anything that W&B did not take. Its text is the reason, as far as it is known."""


class TrackedRun:
    """A run of W&B. Its methods raise `TrackError` for every error of the client."""

    def __init__(self, run: Any):
        self._run = run
        self.id, self.url = str(run.id), str(run.url or "")
        self.files = Path(run.settings.sync_dir)

    def set_axis(self, patterns: Sequence[str], axis: str) -> None:
        """Draw the metrics of `patterns` over `axis` unless a chart says otherwise."""
        with _as_track_error():
            for pattern in patterns:
                self._run.define_metric(pattern, step_metric=axis)

    def log(self, row: Mapping[str, Any]) -> None:
        """Add a row to the history."""
        with _as_track_error():
            self._run.log(dict(row))

    def log_table(self, key: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Log a table under `key`."""
        with _as_track_error():
            self._run.log({key: wandb.Table(columns=list(columns), data=[list(row) for row in rows])})

    def finish(self, summary: Mapping[str, Any], files: Sequence[Path] = (), *, exit_code: int = 0) -> None:
        """Attach `files`, write the summary and wait for the upload. Raises `TrackError` if the uploader gave up."""
        with _as_track_error():
            self._run.summary.update(dict(summary))
            if files:
                artifact = wandb.Artifact(f"files-{self._run.id}", type="run-files")
                # Without `immutable` the client first copies each file to the home folder.
                for path in files:
                    artifact.add_file(str(path), policy="immutable")
                self._run.log_artifact(artifact)
            self._run.finish(exit_code=exit_code)
        if error := upload_error(self.files):
            raise TrackError(error)


def leave_agent() -> None:
    """Forget the run that a W&B sweep agent has named for the command: runs of a sweep of golf would become one."""
    for name in ("WANDB_SWEEP_ID", "WANDB_RUN_ID", "WANDB_SWEEP_PARAM_PATH"):
        os.environ.pop(name, None)


def open_run(track: TrackConfig, root: Path, *, sampled_process: int | None = None, **description: Any) -> TrackedRun:
    """Open a run whose local files go to `root/wandb`. `description` goes to `wandb.init`.

    `sampled_process` is the process whose use of the machine is recorded; None records nothing. Raises `TrackError`
    after `track.init_seconds` if no server answers.
    """
    mode: Any = track.mode  # a plain string, where the client's type lists the values
    settings = wandb.Settings(
        mode=mode,
        root_dir=str(root),
        init_timeout=track.init_seconds if track.mode == "online" else OWN_SECONDS,
        x_service_wait=OWN_SECONDS,
        x_transaction_log_flush_interval=FLUSH_SECONDS,
        x_disable_stats=sampled_process is None,
        x_stats_pid=sampled_process or os.getpid(),
        x_stats_track_process_tree=True,
        silent=True,
        console="off",
        program="golf/train.py",
        # The client would take the commit of the current folder; environment.json has the run's.
        disable_git=True,
        disable_code=True,
        x_disable_meta=True,
        x_save_requirements=False,
    )
    description["tags"] = [tag[:MAX_TAG_CHARS] for tag in description["tags"]]
    with _as_track_error():
        return TrackedRun(wandb.init(project=track.project, entity=track.entity, settings=settings, **description))


def upload_error(files: Path) -> str:
    """Return the first error after which W&B's uploader gave up; empty if there is none."""
    # In wandb 0.31 finishing a run and `wandb sync` succeed even if the upload failed: only this log tells.
    try:
        lines = (files / "logs" / "debug-internal.log").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    for line in lines:
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            if str(entry.get("level")).startswith("ERROR") and not str(entry.get("msg")).startswith(HARMLESS_ERRORS):
                return " ".join(filter(None, (entry["msg"], entry.get("error"))))
    return ""


@contextlib.contextmanager
def _as_track_error() -> Iterator[None]:
    """Turn every error of the client in the block into a `TrackError` with its reason."""
    try:
        yield
    except Exception as error:
        # The client's advice after the reason speaks of its own settings, which golf sets.
        text = " ".join(str(error).split()).replace("<no message>", "")
        reason = text.partition(" Consider ")[0].rstrip(".")
        raise TrackError(reason or "the server refused; the API key may be wrong") from error
