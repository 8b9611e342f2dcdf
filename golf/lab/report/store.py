"""The run store: run folders, the attempts at a seed, and the records of sweeps."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from golf.errors import GolfError
from golf.files import DAMAGED, read_json
from golf.lab.report.rows import STARVED, UNREADABLE, RunRow, is_score, row_of
from golf.run.code import standing
from golf.run.folder import by_age, runs_root
from golf.run.result import CRASHED, FINAL, INTERRUPTED, OK, STOPPED
from golf.tables import grouped

RowOf = Callable[[Path], RunRow]  # reader of a run folder; callers that have read it before give their own
# Any other attempt at the seed replaces one in these states.
SAYS_NOTHING = (CRASHED, INTERRUPTED, STOPPED, UNREADABLE, STARVED)


def find_record(target: str, root: Path) -> dict[str, Any] | None:
    """Return the record of the sweep that `target` names, by its name, the start of its name or its folder.

    Returns None if `target` is no sweep. Raises `GolfError` for an ambiguous name or a damaged record.
    """
    if len(begun := begun_sweeps(target, root)) > 1:
        names = ", ".join(path.parent.name for path in begun)
        raise GolfError(f"{target} begins the names of several sweeps; say which: {names}.")
    # A path comes before a name, and a whole name before the start of one.
    for path in (Path(target) / "sweep.json", Path(target), root / "sweeps" / target / "sweep.json", *begun):
        # A link that leads nowhere is there, too.
        if path.name == "sweep.json" and os.path.lexists(path):
            try:
                return _checked(read_json(path))
            except DAMAGED as error:
                raise GolfError(f"{path} is not the record of a sweep ({error}).") from error
    return None


def _checked(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sweep's record with ids as texts and seeds as numbers. Raises one of `DAMAGED` if it is none."""
    runs = [dict(run, variant_id=str(run["variant_id"]), seed=int(run["seed"])) for run in record["runs"]]
    if not all(re.fullmatch(r"[\w-]+", run["variant_id"], re.ASCII) for run in runs):
        raise ValueError("an id of a variant in it is none")
    plan = record.get("sequential") or {"seeds": [], "reference": ""}
    if not all(isinstance(seed, int) for seed in plan["seeds"]):
        raise TypeError("a seed of its rounds is no whole number")
    texts = [record["name"], *(record.get(key) or "" for key in ("kind", "created", "reference")), plan["reference"]]
    texts += [*record.get("command", []), *record.get("swept", [])]
    for run in (*runs, *record.get("refused", [])):
        texts += [*run.get("overrides", []), run.get("name", ""), run.get("error", "")]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a name or an override in it is no text")
    return {**record, "runs": runs}


def root_of(target: str, root: Path) -> Path:
    """Return the folder with sweeps that `target` is or lies in, as sweep, variant or run; else `root`."""
    folder = Path(target).absolute()
    places = (folder, *folder.parents[:3]) if folder.exists() else ()
    return next((place for place in places if (place / "sweeps").is_dir()), root)


def begun_sweeps(target: str, root: Path) -> list[Path]:
    """Return the records of the sweeps whose names `target` begins: the one of that name, or else of that label.

    A name is a label, a dash and a hash. What begins a label counts only if it is no whole one.
    """
    # The pattern keeps wildcards and slashes out of the glob.
    if not re.fullmatch(r"[\w.-]+", target):
        return []
    for pattern in (target, f"{target}-*", f"{target}*"):
        if records := sorted((root / "sweeps").glob(f"{pattern}/sweep.json")):
            return records
    return []


def other_records(names: Collection[str], root: Path) -> list[dict[str, Any]]:
    """Return the records of the sweeps that are not among `names`."""
    records = []
    for path in sorted((root / "sweeps").glob("*/sweep.json")):
        # A damaged record is an error only for whoever asks for it.
        with contextlib.suppress(GolfError):
            record = find_record(str(path), root)
            if record and record["name"] not in names:
                records.append(record)
    return records


def seeds_asked(record: Mapping[str, Any]) -> dict[str, set[int]]:
    """Return the seeds of a sweep's record by variant id."""
    seeds_of: dict[str, set[int]] = {}
    for run in record["runs"]:
        seeds_of.setdefault(run["variant_id"], set()).add(run["seed"])
    return seeds_of


def sweep_names(root: Path) -> list[str]:
    """Return the names of the sweeps with a record, oldest first."""
    paths = sorted((root / "sweeps").glob("*/sweep.json"), key=lambda path: path.stat().st_mtime)
    return [path.parent.name for path in paths]


def run_folders(path: Path, target: str = "") -> list[Path]:
    """Return the run folders at or below `path`: itself, the seeds of a variant, or all seeds of several variants.

    In place of a path, the beginning of a variant's name or id will do, if only one begins so. Raises `GolfError` if
    there is none.
    """
    if _is_run(path):
        return [path]
    places = [path] if path.exists() else begun_variant(str(path))
    found = (p for pattern in ("seed*", "*/seed*") for place in places for p in sorted(place.glob(pattern)))
    if not (folders := list(filter(_is_run, found))):
        known = ", ".join(sweep_names(runs_root())) or "none yet"
        raise GolfError(f"{target or path} is no sweep and no folder of runs. Sweeps: {known}.")
    return folders


def begun_variant(text: str) -> list[Path]:
    """Return the folders of the variant whose name or id `text` begins, one for each name that it has had.

    Raises `GolfError` if several variants begin so.
    """
    if not re.fullmatch(r"[\w.+-]+", text):
        return []
    for pattern in (text, f"*-{text}", f"{text}*", f"*-{text}*"):
        folders = [path for path in sorted(runs_root().glob(pattern)) if any(path.glob("seed*"))]
        if len({path.name.rpartition("-")[2] for path in folders}) > 1:
            raise GolfError(f"{text} begins several variants; say which: {', '.join(p.name for p in folders)}.")
        if folders:
            return folders
    return []


def index_runs(root: Path) -> dict[str, list[Path]]:
    """Return the run folders under `root` by variant id."""
    places = sorted(root.iterdir()) if root.is_dir() else []
    variants = [place for place in places if place.is_dir() and place.name != "sweeps"]
    runs = ((variant, path) for variant in variants for path in variant.iterdir() if path.name.startswith("seed"))
    return grouped((variant.name.rpartition("-")[2], path) for variant, path in runs)


def standing_row(folders: Sequence[Path], row_of: RowOf = row_of) -> RunRow:
    """Return the finished attempt that stands for a seed, with a remark on each other finished result.

    Crashed, interrupted and stopped attempts count only if no other ended. `row_of` reads the row of a folder.
    """
    if len(folders) == 1:
        return row_of(folders[0])
    rows = [row_of(folder) for folder in by_age(folders)]
    ended = [row for row in rows if not row.is_open]
    # A later attempt that crashed says nothing against an earlier result.
    telling = [row for row in ended if row.state not in SAYS_NOTHING]
    chosen = standing(telling, lambda row: row.code_digest) if telling else (ended or rows)[-1]
    # A folder that is named twice, and a copy of it, are no further result.
    others = [row for row in rows if row.state in FINAL and replace(row, path=chosen.path) != chosen]
    unused = [_about_unused(row, chosen) for row in others]
    return replace(chosen, faults=(*chosen.faults, *unused)) if unused else chosen


def _about_unused(row: RunRow, chosen: RunRow) -> str:
    """Return a remark on a finished result that does not count: a seed that is run again is an extra draw."""
    score = f"{row.val_bpb:.4f} bpb" if row.val_bpb is not None and is_score(row.val_bpb) else "no score"
    score += "" if row.state == OK else f", {row.state}"
    # Copies of a variant's folder have attempts of the same names.
    parts = 1 if len({r.path.parent for r in (row, chosen) if r.path}) == 1 else 2
    folder, first = ("/".join(r.path.parts[-parts:]) if r.path else "another folder" for r in (row, chosen))
    why = "is of other code than" if row.code_digest != chosen.code_digest else "does not count beside"
    return f"the finished result of {folder} ({score}) {why} that of {first}"


def _is_run(path: Path) -> bool:
    return (path / "config.json").is_file() or (path / "result.json").is_file()


def seed_of(folder: Path) -> int | None:
    """Return the seed in a run folder's name; None for another name."""
    digits = folder.name.removeprefix("seed").partition(".")[0]
    return int(digits) if digits.isdigit() else None


def run_id(folder: Path) -> str:
    """Return the name of a run folder on the board, `<name>-<variant id>/seed<k>`."""
    return f"{folder.parent.name}/{folder.name}"
