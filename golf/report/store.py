"""The run store: folders of runs, the attempts at a seed, and the records that sweeps leave."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from golf.errors import GolfError
from golf.report.rows import UNREADABLE, RunRow, row_of
from golf.run.folder import runs_root
from golf.run.result import CRASHED, INTERRUPTED

SAYS_NOTHING = (CRASHED, INTERRUPTED, UNREADABLE)  # of an attempt that another one of the same seed replaces


def find_record(target: str, root: Path) -> dict[str, Any] | None:
    """The record of a sweep that `target` names or begins the name of; None if it is something else."""
    begun = list((root / "sweeps").glob(f"{target}-*/sweep.json")) if re.fullmatch(r"[\w.]+", target) else []
    if len(begun) > 1 and not (root / "sweeps" / target).exists():
        names = ", ".join(path.parent.name for path in sorted(begun))
        raise GolfError(f"{target} begins the names of several sweeps; say which: {names}.")
    for path in (Path(target) / "sweep.json", Path(target), root / "sweeps" / target / "sweep.json", *begun):
        if path.name == "sweep.json" and path.is_file():
            try:
                record = json.loads(path.read_bytes())
                return {**record, "name": record["name"], "runs": list(record["runs"])}
            except (ValueError, KeyError, TypeError) as error:
                raise GolfError(f"{path} is not the record of a sweep ({error}).") from error
    return None


def sweep_names(root: Path) -> list[str]:
    """Sweeps with a record, oldest first."""
    paths = sorted((root / "sweeps").glob("*/sweep.json"), key=lambda path: path.stat().st_mtime)
    return [path.parent.name for path in paths]


def run_folders(path: Path, target: str = "") -> list[Path]:
    """The run folders at or below `path`: itself, a variant's seeds, or everything of a folder of variants."""
    if _is_run(path):
        return [path]
    found = [p for pattern in ("seed*", "*/seed*") for p in sorted(path.glob(pattern)) if _is_run(p)]
    if not found:
        known = ", ".join(sweep_names(runs_root())) or "none yet"
        raise GolfError(f"{target or path} is no sweep and no folder of runs. Sweeps: {known}.")
    return found


def index_runs(root: Path) -> dict[str, list[Path]]:
    """Variant id → its run folders under `root`, which is listed once."""
    found: dict[str, list[Path]] = {}
    for folder in sorted(root.iterdir()) if root.is_dir() else []:
        variant_id = folder.name.rpartition("-")[2]
        if folder.is_dir() and folder.name != "sweeps":
            found.setdefault(variant_id, []).extend(p for p in folder.iterdir() if p.name.startswith("seed"))
    return found


def latest_row(folders: Iterable[Path]) -> RunRow:
    """Of all attempts at a seed the last one that ended; one that was cut off yields to one that was not."""
    rows = [row_of(folder) for folder in sorted(folders, key=_attempt)]
    ended = [row for row in rows if not row.is_open]
    telling = [row for row in ended if row.state not in SAYS_NOTHING]
    return (telling or ended or rows)[-1]


def _is_run(path: Path) -> bool:
    return (path / "config.json").is_file() or (path / "result.json").is_file()


def _attempt(folder: Path) -> tuple[float, int]:
    """Sorts attempts by their making: the environment record is written once; then `seed7.3` is attempt 3."""
    number = folder.name.partition(".")[2]
    made = next((p.stat().st_mtime for p in (folder / "environment.json", folder) if p.exists()), 0.0)
    return made, int(number) if number.isdigit() else 1


def seed_of(folder: Path) -> int | None:
    digits = folder.name.removeprefix("seed").partition(".")[0]
    return int(digits) if digits.isdigit() else None
