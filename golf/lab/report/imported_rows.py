"""Rows of other people's runs: `imported/<name>/import.json` under the runs root, one file for each submission."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from golf.challenge import CAP_BYTES
from golf.files import DAMAGED, read_json
from golf.lab.report.rows import IMPORTED, UNREADABLE, RunRow, bytes_per_token
from golf.lab.report.texts import UNKNOWN_TEXT, imported_text
from golf.lab.report.variants import Variant
from golf.tables import grouped

_WHOLE = ("artifact_bytes", "code_bytes", "total_bytes", "steps")
_REAL = (
    *("pre_quant_bpb", "post_quant_bpb", "sliding_bpb", "ttt_bpb", "val_bpb", "val_loss"),
    *("step_ms", "train_seconds", "eval_seconds"),
)


def imported_folder(root: Path) -> Path:
    """Return the folder of all imports under the runs root."""
    return root / "imported"


def rows_of_record(values: dict[str, Any], folder: Path | None = None) -> list[RunRow]:
    """Return the rows of one record. Raises one of `DAMAGED` if it is none.

    The first row carries the faults of the whole submission, so that a report lists them once.
    """
    of_submission = tuple(values["faults"])
    if rows := [_row(run, folder) for run in values["runs"]]:
        # Faults of a submission are no fault of one run, but a table has a place for those of rows only.
        rows[0] = replace(rows[0], faults=(*rows[0].faults, *of_submission))
    return rows


def _row(run: dict[str, Any], folder: Path | None) -> RunRow:
    figures = {name: float(figure["value"]) for name, figure in run["figures"].items()}
    known: dict[str, Any] = {name: figures[name] for name in _REAL if name in figures}
    # Logs of diverged runs have nan, which is no integer.
    known |= {name: int(figures[name]) for name in _WHOLE if math.isfinite(figures.get(name, math.nan))}
    seed, texts = figures.get("seed"), run["texts"]
    return RunRow(
        variant=run["variant"],
        name=run["name"],
        seed=int(seed) if seed is not None else None,
        state=run["state"],
        reason=run["reason"],
        source=IMPORTED,
        path=folder,
        bytes_per_token=bytes_per_token(figures.get("val_loss"), figures.get("val_bpb")),
        cap_bytes=CAP_BYTES,
        faults=tuple(run["faults"]),
        **{name: texts.get(name) for name in ("machine", "how", "sliding_how", "ttt_how")},
        data=imported_text(
            texts.get("scored_text", UNKNOWN_TEXT), figures.get("val_tokens"), run["name"].partition("/")[0]
        ),
        **known,
    )


def find_imported(target: str, root: Path) -> list[RunRow]:
    """Return the rows of an imported submission by its folder or name; none if `target` is no import.

    An unreadable record becomes a row that says so.
    """
    for folder in (Path(target), imported_folder(root) / target):
        if (path := folder / "import.json").is_file():
            try:
                return rows_of_record(read_json(path), folder)
            except DAMAGED as error:
                reason = f"import.json cannot be read ({type(error).__name__}: {error}): import it again"
                return [RunRow(folder.name, folder.name, None, UNREADABLE, reason, IMPORTED, folder)]
    return []


def imported_variants(rows: Iterable[RunRow]) -> tuple[Variant, ...]:
    """Group rows into variants. A variant's label is what the names of its runs have in common."""
    rows_of = grouped((row.variant, row) for row in rows)
    return tuple(Variant(variant, _label(runs), tuple(runs)) for variant, runs in rows_of.items())


def _label(rows: list[RunRow]) -> str:
    return rows[0].name if len(rows) == 1 else rows[0].name.rpartition("/")[0] or rows[0].name
