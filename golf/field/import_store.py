"""Importing: submissions are read, audited and kept as `imported/<name>/import.json` under the runs root."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from golf.field.claims import claim_faults
from golf.field.folder_reader import ForeignFolder, read_folders
from golf.field.foreign_run import ForeignRun
from golf.field.readme_claims import find_readme, readme_faults
from golf.field.run_audit import audit_runs, copies, same_seed_faults, shard_faults
from golf.field.script_audit import SCRIPT
from golf.field.submitted_runs import Logs, submitted
from golf.files import DAMAGED, read_json, write_json
from golf.lab.report.imported_rows import imported_folder, rows_of_record
from golf.words import listed

FORMAT = 1


def import_folders(paths: Sequence[Path]) -> Iterator[ForeignFolder]:
    """Yield each submission in or below `paths`, audited. Raises `GolfError` for a path that does not exist."""
    for folder in read_folders(paths):
        audit_runs(folder.runs)
        folder.faults += _folder_faults(folder)
        yield folder


def _folder_faults(folder: ForeignFolder) -> list[str]:
    """Return faults that only several runs, or runs together with the claims, can show. Copies are taken out."""
    # Two logs of one run would count as two seeds in every mean.
    groups, folder.runs = copies(folder.runs)
    copied = [f"{listed([run.name for run in same])} are copies of one run" for same in groups]
    faults = [*same_seed_faults(folder.runs), *copied, *shard_faults(folder.runs)]
    chosen: list[ForeignRun] = []
    if folder.claims is not None:
        if folder.claims.problem:
            faults.append(f"{folder.claims.name} {folder.claims.problem}")
        # A run that was made from the claims cannot contradict them.
        logged = [run for run in folder.runs if run.files[0] != folder.claims.name]
        script = Path(folder.folder) / SCRIPT
        faults += claim_faults(logged, folder.claims, script.stat().st_size if script.is_file() else None)
        chosen = submitted(Logs(scored=[run for run in logged if run.has_score]), folder.claims).runs
    if (readme := find_readme(Path(folder.folder))) is not None and folder.has_logs:
        faults += readme_faults(readme, folder.runs, chosen)
    return faults


def store(values: dict[str, Any], root: Path) -> Path:
    """Write a submission's record and return its path. The record of the same folder is replaced; another folder of
    the same name gets a name of its own."""
    folder = imported_folder(root)
    name = values["name"]
    for path in (folder / name / "import.json", folder / f"{name}.{values['mark']}" / "import.json"):
        # A damaged record has no origin, and may be replaced.
        if not path.exists() or _origin(path) in (None, values["imported_from"]):
            break
    write_json(path, values)
    return path


def _origin(path: Path) -> str | None:
    """Return the folder that a record was imported from, None if the record is damaged."""
    try:
        return str(read_json(path)["imported_from"])
    except DAMAGED:
        return None


def record(folder: ForeignFolder) -> dict[str, Any]:
    """Return the content of import.json: every run's figures with their sources, every score, and the faults."""
    return {
        "format": FORMAT,
        "name": folder.name,
        "mark": folder.mark,
        "imported_from": folder.folder,
        "faults": folder.faults,
        "lines": folder.lines,
        "lines_of_source": folder.source_lines,
        "lines_not_understood": folder.not_understood,
        "examples_not_understood": folder.examples,
        "keys_not_understood": folder.claims.not_understood if folder.claims else [],
        "skipped_files": folder.skipped,
        "runs": [_run_record(run) for run in folder.runs],
    }


def _run_record(run: ForeignRun) -> dict[str, Any]:
    kept = "name", "variant", "files", "state", "reason", "faults", "texts"
    return {
        **{name: getattr(run, name) for name in kept},
        "figures": {n: _plain({"value": f.value, "source": f.source}) for n, f in sorted(run.figures.items())},
        "scores": [_plain(dataclasses.asdict(score)) for score in run.scores],
    }


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with numbers that are not finite as texts, which JSON lacks."""
    return {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


def read_records(root: Path) -> list[dict[str, Any]]:
    """Return all records under the runs root that can be read."""
    records = []
    for path in sorted(imported_folder(root).glob("*/import.json")):
        try:
            values = read_json(path)
            # A record from which no rows can be made is as damaged as one that is not JSON.
            rows_of_record(values)
            records.append(values)
        except DAMAGED:
            continue
    return records
