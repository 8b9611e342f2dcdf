"""ForeignFolder runs under the runs root: `imported/<name>/import.json`, one file a submission, and rows made from them."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from golf.files import write_json
from golf.foreign.figures import Figure
from golf.foreign.folder_reader import ForeignFolder
from golf.foreign.foreign_run import ForeignRun
from golf.report.imported import DAMAGED, imported_folder, imported_rows, rows_of_record

FORMAT = 1
__all__ = ["imported_rows", "read_records", "record", "store"]


def store(values: dict[str, Any], root: Path) -> Path:
    """Write a submission's record. The same folder imported again replaces its record; another folder of the same
    name gets a place of its own."""
    folder = imported_folder(root)
    name = values["name"]
    for path in (folder / name / "import.json", folder / f"{name}.{values['mark']}" / "import.json"):
        if not path.exists() or _origin(path) in (None, values["imported_from"]):
            break
    write_json(path, values)
    return path


def _origin(path: Path) -> str | None:
    try:
        return str(json.loads(path.read_bytes())["imported_from"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def record(found: ForeignFolder) -> dict[str, Any]:
    """What is kept: every run's row, the source of every number, every score with its tag, and the faults."""
    return {
        "format": FORMAT,
        "name": found.name,
        "mark": found.mark,
        "imported_from": found.folder,
        "faults": found.faults,
        "lines": found.lines,
        "lines_of_source": found.source_lines,
        "lines_not_understood": found.not_understood,
        "examples_not_understood": found.examples,
        "keys_not_understood": found.submission.not_understood if found.submission else [],
        "skipped_files": found.skipped,
        "runs": [_run_record(run) for run in found.runs],
    }


def _run_record(run: ForeignRun) -> dict[str, Any]:
    return {
        "name": run.name,
        "variant": run.variant,
        "files": run.files,
        "state": run.state,
        "reason": run.reason,
        "faults": run.faults,
        "texts": run.texts,
        "figures": {name: _figure_record(figure) for name, figure in sorted(run.figures.items())},
        "scores": [_plain(dataclasses.asdict(score)) for score in run.scores],
    }


def _figure_record(figure: Figure) -> dict[str, Any]:
    return _plain({"value": figure.value, "source": figure.source})


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """JSON knows no nan; a number that is none is kept as its name."""
    return {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


def read_records(root: Path) -> list[dict[str, Any]]:
    """All records under the runs root that can be read."""
    found = []
    for path in sorted(imported_folder(root).glob("*/import.json")):
        try:
            values = json.loads(path.read_bytes())
            rows_of_record(values)
            found.append(values)
        except DAMAGED:
            continue
    return found
