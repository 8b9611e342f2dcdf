"""Imported runs for people and programs: a table, their faults, CSV, JSON, and the sources of a run's numbers."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from golf.errors import GolfError
from golf.field.imported_entries import Entry
from golf.lab.report.rows import RunRow
from golf.lab.report.table import Column, Table
from golf.lab.report.table import as_csv as table_as_csv
from golf.run.result import OVER_BYTES, OVER_TIME
from golf.tables import grouped, table_of
from golf.words import counted, listed

LEAST_NAME = 32  # characters
_SCORES, _NUMBERS = ("pre-quant", "post-quant", "sliding", "ttt", "final"), ("bytes", "steps", "step ms", "s", "faults")
_COLUMNS = ("run", "state", "seed", *_SCORES, *_NUMBERS)
_FIRST = ("val_bpb", "val_loss")  # figures at the top of an explanation
MOST_FAULTS_SHOWN = 60
OTHER = "other"
# The first kind whose expression a sentence matches is its kind.
_PATTERNS = {kind: re.compile(words, re.IGNORECASE) for kind, words in table_of(__file__).items()}
KINDS = (*_PATTERNS, OTHER)
_TOLD_BY_FAULTS = {OVER_BYTES: "over the cap", OVER_TIME: "over the time"}  # states that repeat a fault


def table(entries: Sequence[Entry], width: int, *, by_submission: bool = True) -> str:
    """Return a table with one line a run: scores in bits per byte, bytes of model and code, seconds of training.

    Runs stand below the name of their submission, in the order given, unless the entries are sorted otherwise.
    """
    # rich needs seven seconds for 5,000 rows.
    cells = [_cells(entry) for entry in entries]
    names = [entry.row.name.partition("/")[2] if by_submission else entry.row.name for entry in entries]
    widths = [max(len(title), *(len(row[i]) for row in cells)) if cells else 0 for i, title in enumerate(_COLUMNS[1:])]
    # Names that are cut have to stay apart, so a column for them is as wide as the longest where there is room.
    room = max(LEAST_NAME, width - sum(widths) - 2 * len(widths) - 2)
    names = _apart(names, min(room, max(map(len, names), default=0)))
    first = max([len(_COLUMNS[0]), *map(len, names)])

    def line(name: str, rest: Sequence[str]) -> str:
        aligned = [rest[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(rest[1:], widths[1:], strict=True))]
        return "  ".join([f"  {name}".ljust(first + 2), *aligned]).rstrip()

    lines = [counted(len(entries), "imported run"), line(_COLUMNS[0], _COLUMNS[1:])]
    submission = None
    for name, row, entry in zip(names, cells, entries, strict=True):
        if by_submission and entry.submission is not submission:
            submission = entry.submission
            faults = len(submission["faults"])
            lines.append(submission["name"] + (f" ({counted(faults, 'fault')})" if faults else ""))
        lines.append(line(name, row))
    return "\n".join(lines)


def _cells(entry: Entry) -> list[str]:
    row = entry.row
    size = row.total_bytes if row.total_bytes is not None else row.artifact_bytes
    scores = (row.pre_quant_bpb, row.post_quant_bpb, row.sliding_bpb, row.ttt_bpb, row.val_bpb)
    return [
        row.state,
        _shown(row.seed, "d"),
        *(_shown(score, ".4f") for score in scores),
        _shown(size, ",d"),
        _shown(row.steps, ",d"),
        _shown(row.step_ms, ".2f"),
        _shown(row.train_seconds, ".1f"),
        str(len(entry.run["faults"]) or ""),
    ]


def _apart(names: Sequence[str], width: int) -> list[str]:
    """Return the names with their middle cut out where they are longer than `width`, unless two became the same."""
    # The end of a name stays, too: names of logs often differ only in the seed there.
    head = (width - 1) // 2
    cut = [n if len(n) <= width else f"{n[:head]}…{n[len(n) - (width - 1 - head) :]}" for n in names]
    owners = Counter(short for short, _ in {*zip(cut, names, strict=True)})
    return [short if owners[short] == 1 else name for short, name in zip(cut, names, strict=True)]


def summary(records: Sequence[dict[str, Any]]) -> list[str]:
    """Return sentences on how much was read, and on lines, keys and files that were not understood."""
    runs, lines = sum(len(r["runs"]) for r in records), sum(r["lines"] for r in records)
    unknown = sum(r["lines_not_understood"] for r in records)
    sentences = [f"{counted(runs, 'run')} in {counted(len(records), 'folder')}, {counted(lines, 'line')} read"]
    if unknown:
        example = next(e for r in records for e in r["examples_not_understood"])
        sentences.append(f"{counted(unknown, 'line')} not understood, e.g. {example}")
    if keys := [f"{r['name']}: {key}" for r in records for key in r["keys_not_understood"]]:
        sentences.append(f"{counted(len(keys), 'key')} of submission.json not understood, e.g. {keys[0]}")
    skipped = [f"{r['name']}/{file} {why}" for r in records for file, why in r["skipped_files"].items()]
    if skipped:
        sentences.append(f"{counted(len(skipped), 'file')} without a run, e.g. {skipped[0]}")
    return sentences


def as_csv(rows: Sequence[RunRow]) -> str:
    """Return CSV with every field of a row; faults are joined by semicolons."""
    columns = tuple(Column(field.name, "") for field in dataclasses.fields(RunRow))
    return table_as_csv(Table(columns, [vars(row) | {"faults": "; ".join(row.faults)} for row in rows]))


def as_json(records: Sequence[dict[str, Any]]) -> str:
    """Return the records as JSON."""
    return json.dumps(list(records), indent=2) + "\n"


def explanation(records: Sequence[dict[str, Any]], wanted: str) -> str:
    """Return every number of one run with its source. Raises `GolfError` if `wanted` names no run, or several."""
    runs = [(run, record) for record in records for run in record["runs"]]
    # A whole name wins over parts of names, because one run's name can begin another's.
    matching = [pair for pair in runs if pair[0]["name"] == wanted] or [p for p in runs if wanted in p[0]["name"]]
    if len(matching) != 1:
        names = ", ".join(run["name"] for run, _ in (matching or runs)[:8])
        asks = "Say which" if matching else "There are"
        raise GolfError(f"{wanted} names {len(matching) or 'no'} runs. {asks}: {names or 'none'}.")
    run, record = matching[0]
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


def kind_of(fault: str) -> str:
    """Return the kind of a fault's sentence."""
    return next((kind for kind, pattern in _PATTERNS.items() if pattern.search(fault)), OTHER)


def counts(entries: Sequence[Entry]) -> str:
    """Return how many faults there are of each kind, the gravest kind first; empty without a fault."""
    kinds = Counter(kind for kind, _, _ in _faults(entries))
    listed = ", ".join(f"{kinds[kind]:,} {kind}" for kind in KINDS if kinds[kind])
    return f"{counted(kinds.total(), 'fault')}: {listed}" if kinds else ""


def fault_lines(entries: Sequence[Entry]) -> list[str]:
    """Return the gravest faults, each with the runs that have it, then the ends of runs that are not ok."""
    # One sentence about three seeds is one line.
    names = grouped(((kind, name.partition("/")[0], fault), name) for kind, name, fault in _faults(entries))
    in_order = sorted(names.items(), key=lambda item: KINDS.index(item[0][0]))
    lines = [f"{listed(runs)}: {fault}" for (_, _, fault), runs in in_order]
    for entry in entries:
        row = entry.row
        # Runs over the cap or the time have a fault that says the same with the amount.
        told = _TOLD_BY_FAULTS.get(row.state)
        if row.reason and not (told and any(kind_of(fault) == told for fault in entry.run["faults"])):
            lines.append(f"{row.name}: {row.state}, {row.reason}")
    more = len(lines) - MOST_FAULTS_SHOWN
    return lines[:MOST_FAULTS_SHOWN] + (
        [f"and {more:,} more: see --filter fault=WORDS, --csv, --json or --explain RUN"] if more > 0 else []
    )


def _faults(entries: Sequence[Entry]) -> list[tuple[str, str, str]]:
    """Return (kind, name, sentence) of every fault; those of a submission once, under its name."""
    faults = []
    seen: set[int] = set()
    for entry in entries:
        # All entries of a submission hold one and the same record, so its identity tells whether it has been listed.
        if id(entry.submission) not in seen:
            seen.add(id(entry.submission))
            faults += [(kind_of(fault), entry.submission["name"], fault) for fault in entry.submission["faults"]]
        faults += [(kind_of(fault), entry.row.name, fault) for fault in entry.run["faults"]]
    return faults
