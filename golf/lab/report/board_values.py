"""Plain values for the board: runs, how far they are, settings that differ, and sweeps.

Files that have not changed are not read again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from golf.errors import GolfError
from golf.files import DAMAGED, read_json
from golf.lab.report.board_curves import VALIDATION, MetricsTail
from golf.lab.report.board_run import remarks_of
from golf.lab.report.changes import Flat, settings_that_differ
from golf.lab.report.rows import RunRow, row_of
from golf.lab.report.store import find_record, run_id, seed_of, standing_row
from golf.run.folder import RunFolder
from golf.run.identity import identity_of
from golf.run.locks import is_held, run_lock_name
from golf.run.progress import how_far
from golf.settings.config import Config, from_dict, training_seconds
from golf.tables import grouped

Stamp = tuple[int, int] | None  # modification time in nanoseconds and bytes of a file; None if there is no file
SHOWN = (
    *("variant", "name", "seed", "state", "reason", "machine", "bytes_per_token", "cap_bytes"),
    *("val_bpb", "pre_quant_bpb", "post_quant_bpb", "sliding_bpb", "ttt_bpb"),
    *("artifact_bytes", "code_bytes", "total_bytes", "steps", "step_ms", "train_seconds", "eval_seconds"),
)


@dataclass
class _Run:
    """Values read from a run folder, and the stamps of its files at that time."""

    folder: Path
    tail: MetricsTail
    stamps: tuple[Stamp, Stamp] | None = None  # of result.json and config.json; None before the first look
    noted: tuple[Stamp, Stamp] | None = None  # of config.json and note.txt
    row: RunRow = field(default_factory=lambda: RunRow("", ""))
    remarks: dict[str, Any] = field(default_factory=dict)  # note and tags
    cfg: Config | None = None  # of a run that has not ended

    def refresh(self) -> None:
        """Read result, configuration and note again if they have changed."""
        folder = RunFolder(self.folder)
        config = stamp(folder.config)
        stamps, noted = (stamp(folder.result), config), (config, stamp(folder.note))
        if stamps != self.stamps:
            self.row, self.stamps, self.cfg = row_of(self.folder), stamps, None
            if self.row.is_open:
                with contextlib.suppress(GolfError):
                    self.cfg = folder.read_config()
        if noted != self.noted:
            self.remarks, self.noted = remarks_of(folder), noted

    @property
    def validations(self) -> int:
        """Return the number of validations that were seen of a run that goes on, of which a remark may speak."""
        return len(self.tail.points[VALIDATION]) if self.row.is_open else 0

    def values(self, locks: Path) -> dict[str, Any]:
        """Return the values of the row and, for a run that has not ended, how far it is. `locks` has the lock files."""
        shown = {key: getattr(self.row, key) for key in SHOWN} | self.remarks
        if self.row.is_open:
            self.tail.refresh()
            shown |= self.tail.progress()
            shown["is_held"] = is_held(locks / run_lock_name(self.row.variant, self.row.seed or 0))
            if self.cfg:
                step, seconds = shown["steps"] or 0, shown["train_seconds"] or 0.0
                share, left = how_far(self.cfg, step, seconds)
                shown |= {"share": share, "seconds_left": left, "iterations": self.cfg.schedule.iterations}
        return shown


class RunsRoot:
    """Reader of all runs and sweeps below one folder. Symbolic links below it are not followed.

    With `folders`, by run id, it reads those instead, wherever they are, and no sweeps.
    """

    def __init__(self, root: Path, folders: Mapping[str, Path] | None = None) -> None:
        self.root, self._folders = root, folders
        self._runs: dict[str, _Run] = {}
        self._records: dict[str, tuple[Stamp, dict[str, Any]]] = {}
        self._settings: dict[str, Flat] = {}  # settings by variant id, which is a hash of them
        self._budgets: dict[str, tuple[float, int]] = {}  # seconds (0 = no clock) and steps by variant id
        self._differing: tuple[set[str], dict[str, dict[str, str]]] = (set(), {})

    def refresh(self) -> None:
        """Look for new, changed and removed runs."""
        folders = dict(_run_folders(self.root)) if self._folders is None else self._folders
        self._runs = {id: self._runs.get(id) or _Run(path, MetricsTail(path)) for id, path in folders.items()}
        for run in self._runs.values():
            run.refresh()

    def overview(self) -> dict[str, Any]:
        """Return runs by id, settings that differ by variant id, and the sweeps: started ones first, by age."""
        self.refresh()
        return {
            "root": self.root.name,
            "runs": {id: run.values(self.root / "locks") for id, run in self._runs.items()},
            "settings": self._settings_that_differ(),
            "budgets": self._budgets,
            # A sweep that never started is not what somebody wants to see first.
            "sweeps": sorted(self._sweeps(), key=lambda s: (bool(s["runs"]), s["created"]), reverse=True),
        }

    def folder(self, run_id: str) -> RunFolder:
        """Return the folder of a run that the overview lists. Raises `GolfError` for any other text."""
        return RunFolder(self._known(run_id).folder)

    def row(self, folder: Path) -> RunRow:
        """Return the row of a run folder as it was at the last look."""
        run = self._runs.get(run_id(folder))
        return run.row if run and run.folder == folder else row_of(folder)

    def tail(self, run_id: str) -> MetricsTail:
        """Return the reader of a listed run's metrics. Raises `GolfError` for any other text."""
        return self._known(run_id).tail

    def sweep_record(self, name: str) -> Path:
        """Return the record of a sweep. Raises `GolfError` if the runs root has no sweep of that name."""
        if name not in dict(_sweep_records(self.root)):
            raise GolfError(f"There is no sweep {name} under the runs root.")
        return self.root / "sweeps" / name / "sweep.json"

    def state(self, name: str) -> Any:
        """Return a value that changes whenever a file changes that the table of a sweep is made of."""
        seen = ((id, run.stamps, run.validations) for id, run in self._runs.items())
        return stamp(self.sweep_record(name)), hash(tuple(seen))

    def _known(self, run_id: str) -> _Run:
        # Ids are looked up and never joined to a path, so that no request can name another file.
        if run_id not in self._runs:
            self.refresh()
        if run_id not in self._runs:
            raise GolfError(f"There is no run {run_id} under the runs root.")
        return self._runs[run_id]

    def _settings_that_differ(self) -> dict[str, dict[str, str]]:
        # All seeds of a variant have its settings, so that one of its configurations is read.
        for run in self._runs.values():
            if run.row.variant not in self._settings:
                self._read_settings(run)
        variants = {run.row.variant for run in self._runs.values()} & self._settings.keys()
        if variants != self._differing[0]:
            self._differing = variants, settings_that_differ({id: self._settings[id] for id in sorted(variants)})
        return self._differing[1]

    def _read_settings(self, run: _Run) -> None:
        with contextlib.suppress(*DAMAGED):
            values = read_json(run.folder / "config.json")
            self._settings[run.row.variant] = identity_of(values)
            with contextlib.suppress(GolfError):
                cfg = from_dict(Config, values)
                self._budgets[run.row.variant] = max(training_seconds(cfg), 0.0), cfg.schedule.iterations

    def _sweeps(self) -> Iterator[dict[str, Any]]:
        folders = grouped(((run.row.variant, seed_of(run.folder)), id) for id, run in self._runs.items())
        for name, path in _sweep_records(self.root):
            seen = stamp(path)
            if name not in self._records or self._records[name][0] != seen:
                self._records[name] = seen, _record(path, self.root)
            record = self._records[name][1]
            runs = [self._latest(folders.get((run["variant_id"], run["seed"]), [])) for run in record.get("runs", [])]
            shown: dict[str, Any] = {key: record.get(key) or "" for key in ("kind", "created", "error")}
            # At most; 0 for a sweep without looks.
            shown["rounds"] = len((record.get("sequential") or {}).get("seeds", ()))
            yield {"name": name, **shown, "runs": [id for id in runs if id], "waiting": runs.count("")}

    def _latest(self, ids: list[str]) -> str:
        """Return the id of the attempt that stands for a seed; empty without any."""
        if len(ids) < 2:
            return ids[0] if ids else ""
        chosen = standing_row([self._runs[id].folder for id in ids]).path
        return next(id for id in ids if self._runs[id].folder == chosen)


def stamp(path: Path) -> Stamp:
    """Return modification time in nanoseconds and size in bytes; None if the file cannot be seen."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _run_folders(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield id and path of every run folder, `<name>-<variant id>/seed<k>`."""
    for variant in _folders(root):
        if variant.name != "sweeps":
            for folder in _folders(variant):
                if folder.name.startswith("seed"):
                    yield f"{variant.name}/{folder.name}", Path(folder.path)


def _sweep_records(root: Path) -> Iterator[tuple[str, Path]]:
    for folder in _folders(root / "sweeps"):
        path = Path(folder.path, "sweep.json")
        if os.path.lexists(path):
            yield folder.name, path


def _folders(path: str | Path | os.DirEntry[str]) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return sorted((e for e in entries if e.is_dir(follow_symlinks=False)), key=lambda e: e.name)
    except OSError:
        return []


def _record(path: Path, root: Path) -> dict[str, Any]:
    try:
        return find_record(str(path), root) or {}
    except GolfError as error:
        return {"error": str(error)}
