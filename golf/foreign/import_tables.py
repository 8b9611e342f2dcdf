"""Imported runs for people and programs: a table, CSV, JSON, and the sources of a run's numbers."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from golf.errors import GolfError
from golf.report.rows import RunRow

MOST_FAULTS_SHOWN = 60
WIDEST_NAME = 32
_SCORES, _NUMBERS = ("pre-quant", "post-quant", "sliding", "ttt"), ("bytes", "steps", "step ms", "s", "faults")
_COLUMNS = ("run", "state", "seed", *_SCORES, *_NUMBERS)
_FIRST = ("val_bpb", "val_loss")  # figures at the top of an explanation


def table(rows: Sequence[RunRow]) -> Table:
    """Return a table with one row a run: scores in bits per byte, bytes of model and code, seconds of training."""
    shown = Table(title=f"{len(rows)} imported runs", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in _COLUMNS:
        if column == "run":
            shown.add_column(column, overflow="ellipsis", no_wrap=True, max_width=WIDEST_NAME)
        else:
            width = 10 if column == "bytes" else len(column)
            shown.add_column(column, justify="left" if column == "state" else "right", no_wrap=True, min_width=width)
    folder = ""
    for row in rows:
        if row.name.partition("/")[0] != folder:
            folder = row.name.partition("/")[0]
            shown.add_row(folder, style="bold")
        scores = (row.pre_quant_bpb, row.post_quant_bpb, row.sliding_bpb, row.ttt_bpb)
        size = row.total_bytes if row.total_bytes is not None else row.artifact_bytes
        shown.add_row(
            "  " + row.name.partition("/")[2],
            row.state,
            _shown(row.seed, "d"),
            *(_shown(score, ".4f") for score in scores),
            _shown(size, ",d"),
            _shown(row.steps, ",d"),
            _shown(row.step_ms, ".2f"),
            _shown(row.train_seconds, ".1f"),
            str(len(row.faults)) if row.faults else "",
        )
    return shown


def fault_lines(records: Sequence[dict[str, Any]]) -> list[str]:
    """Return the first faults of all folders and runs, and the number of the others."""
    lines = []
    for record in records:
        lines += [f"{record['name']}: {fault}" for fault in record["faults"]]
        lines += [f"{run['name']}: {fault}" for run in record["runs"] for fault in run["faults"]]
        lines += [f"{r['name']}: {r['state']}, {r['reason']}" for r in record["runs"] if r["reason"]]
    more = len(lines) - MOST_FAULTS_SHOWN
    return lines[:MOST_FAULTS_SHOWN] + ([f"and {more} more: see --csv, --json or --explain RUN"] if more > 0 else [])


def summary(records: Sequence[dict[str, Any]]) -> list[str]:
    """Return sentences on how much was read, and on lines, keys and files that were not understood."""
    runs, lines = sum(len(r["runs"]) for r in records), sum(r["lines"] for r in records)
    unknown = sum(r["lines_not_understood"] for r in records)
    found = [f"{runs} runs in {len(records)} folders, {lines:,} lines read"]
    if unknown:
        example = next(e for r in records for e in r["examples_not_understood"])
        found.append(f"{unknown:,} lines not understood, e.g. {example}")
    keys = [f"{r['name']}: {key}" for r in records for key in r["keys_not_understood"]]
    if keys:
        found.append(f"{len(keys)} keys of submission.json not understood, e.g. {keys[0]}")
    skipped = [f"{r['name']}/{file} {why}" for r in records for file, why in r["skipped_files"].items()]
    if skipped:
        found.append(f"{len(skipped)} files without a run, e.g. {skipped[0]}")
    return found


def as_csv(rows: Sequence[RunRow]) -> str:
    """Return CSV with every field of a row; faults are joined by semicolons."""
    names = [field.name for field in dataclasses.fields(RunRow)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        values = {name: getattr(row, name) for name in names} | {"faults": "; ".join(row.faults)}
        writer.writerow(["" if values[name] is None else values[name] for name in names])
    return text.getvalue()


def as_json(records: Sequence[dict[str, Any]]) -> str:
    """Return the records as JSON."""
    return json.dumps(list(records), indent=2) + "\n"


def explanation(records: Sequence[dict[str, Any]], wanted: str) -> str:
    """Return every number of one run with its source. Raises `GolfError` if `wanted` names no run, or several."""
    runs = [(run, record) for record in records for run in record["runs"]]
    found = [pair for pair in runs if pair[0]["name"] == wanted] or [p for p in runs if wanted in p[0]["name"]]
    if len(found) != 1:
        names = ", ".join(run["name"] for run, _ in (found or runs)[:8])
        raise GolfError(
            f"{wanted} names {len(found) or 'no'} runs. {'Say which' if found else 'There are'}: {names or 'none'}."
        )
    run, record = found[0]
    state = run["state"] + (f": {run['reason']}" if run["reason"] else "")
    lines = [run["name"], f"  read from {record['imported_from']}", f"  state {state}"]
    lines += [f"  {name}: {value}" for name, value in sorted(run["texts"].items())]
    figures = sorted(run["figures"].items(), key=lambda item: (item[0] not in _FIRST, item[0]))
    width = max((len(name) for name, _ in figures), default=0)
    lines += [f"  {name:<{width}}  {_plain(figure['value']):<14}  {figure['source']}" for name, figure in figures]
    lines += [f"  score {s['val_bpb']} as {s['kind']}, line {s['line']}: {s['tag']}" for s in run["scores"]]
    lines += [f"  fault: {fault}" for fault in (*run["faults"], *record["faults"])]
    return "\n".join(lines) + "\n"


def _plain(value: Any) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _shown(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
