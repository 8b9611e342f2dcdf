"""Mirror runs and sweeps that have ended, from their folders."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from golf.errors import GolfError
from golf.files import read_object
from golf.lab.track.companion import end, start
from golf.lab.track.mirror_record import OFFLINE, UPLOADED, MirrorRecord, is_sweep, record_path
from golf.run.folder import RunFolder
from golf.settings.config import RulesConfig, from_dict
from golf.settings.jobs_config import TrackConfig

UPLOAD_SECONDS = 300.0  # longer than after a run, because no machine waits for the upload
IN_A_RUNS_ROOT = ("seed*/config.json", "*/seed*/config.json", "sweeps/*/sweep.json")


def folders(paths: Iterable[Path]) -> list[Path]:
    """Return the folders of runs and sweeps at or below `paths`. Raises `GolfError` for a path without any."""
    runs: list[Path] = []
    for path in paths:
        inside = [path / name for name in ("config.json", "sweep.json")]
        for pattern in IN_A_RUNS_ROOT:
            inside += sorted(path.glob(pattern))
        if not (here := [file.parent.absolute() for file in inside if file.is_file()]):
            raise GolfError(f"{path} is no run or sweep and holds none: give multirun/ or a folder in it.")
        runs += here
    return list(dict.fromkeys(runs))


def pending(folder: Path, *, offline: bool) -> bool:
    """Tell whether `folder` still has to be uploaded, or with `offline` recorded: it never was, or changed since."""
    record = MirrorRecord.read(folder)
    if record is None or record.state not in ((UPLOADED, OFFLINE) if offline else (UPLOADED,)):
        return True
    # The record is written last, so its time is that of the mirror.
    mirrored_at = record_path(folder).stat().st_mtime
    return any(path.stat().st_mtime > mirrored_at for path in _sources(folder) if path.is_file())


def has_ended(folder: Path) -> bool:
    """Tell whether `folder` can be mirrored as a whole: a run needs its result; a sweep always can."""
    return is_sweep(folder) or (folder / "result.json").is_file()


def back_fill(folder: Path, track: TrackConfig, rules: RulesConfig | None = None) -> MirrorRecord | None:
    """Mirror a run or a sweep's report. Return its record; None, after a warning, if a part did not arrive.

    Without `rules` a report is judged by the rules that its runs were made with.
    """
    run = RunFolder(folder)
    return MirrorRecord.open(folder) if end(start(run, track, rules), run, track.finish_seconds) else None


def settings_of(folder: Path) -> TrackConfig:
    """Return the tracker settings of a run or of a sweep's first run; without any, the defaults of `track=wandb`."""
    if is_sweep(folder):
        folder = next(_runs_of_sweep(folder), folder)
    values = read_object(folder / "config.json").get("track", {})
    if values.get("backend", "none") != "none":
        return from_dict(TrackConfig, values)
    environment = os.environ
    project, entity = environment.get("WANDB_PROJECT", TrackConfig.project), environment.get("WANDB_ENTITY")
    return TrackConfig(backend="wandb", project=project, entity=entity)


def unhurried(track: TrackConfig, mode: str, project: str | None, entity: str | None) -> TrackConfig:
    """Return `track` with time for a large upload, and with `project` and `entity` replaced if they are given."""
    return dataclasses.replace(
        track, mode=mode, project=project or track.project, entity=entity or track.entity, finish_seconds=UPLOAD_SECONDS
    )


def _sources(folder: Path) -> list[Path]:
    """Return the files whose content a mirror of `folder` shows."""
    results = [run / "result.json" for run in _runs_of_sweep(folder)] if is_sweep(folder) else []
    return [folder / name for name in ("result.json", "sweep.json")] + results


def _runs_of_sweep(folder: Path) -> Iterator[Path]:
    """Yield the run folders of a sweep."""
    for run in read_object(folder / "sweep.json").get("runs", []):
        yield from folder.parent.parent.glob(f"*-{run['variant_id']}/seed{run['seed']}*")
