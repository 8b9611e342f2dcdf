"""The numbers that a README claims, compared with the logs beside it: table of seeds, quoted log lines, headline."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from golf.field.audit import Audit
from golf.field.figures import Figure, mean_of, parse_number
from golf.field.foreign_run import ForeignRun, ForeignRuns
from golf.field.log_lines import ScoreLine, read_line
from golf.field.scores import OTHER, claimed_kind
from golf.field.submission_json import Claims
from golf.field.submitted_runs import Logs, Submitted, mean_bpb
from golf.field.text import TextFile, UnreadableError

README = "README.md"
MOST_LINES = 5000
CELL_RANGE = (0.5, 2.0)  # bpb of a score in a table; smaller numbers are differences
TEXT_RANGE = (0.5, 4.0)  # bpb of a score in the text
CELL_DECIMALS, QUOTED_DECIMALS = 4, 6  # fewest of a score in a table, and in a quoted log line
LARGEST_SIZE = 10**9  # bytes
_SEED_CELL = re.compile(r"(?:seed\s*)?(\d{1,9})", re.IGNORECASE)
_SEED_ROW = re.compile(r"\s*\|\W*(?:seed\W*)?\d+\W*\|", re.IGNORECASE)
_HEADLINE = re.compile(r"val[_ ]?bpb\W{0,6}(\d\.\d{4,})", re.IGNORECASE)
# Columns of somebody else's runs, or of the ones that these are compared with.
_OTHERS = re.compile(r"#\d{2,}|\b(?:pr|baseline|previous|prior|sota|reference|upstream|control)\b", re.IGNORECASE)
_NUMBER = re.compile(r"\b\d\.\d{4,}\b")


@dataclass
class _SeedTable:
    """Wrong cells of a table of seeds, and how many scores in it are those of the logs."""

    header: list[str]
    faults: list[str] = field(default_factory=list)
    agreed: int = 0


def find_readme(folder: Path) -> Path | None:
    """Return the README of a folder, in any of its usual spellings."""
    return next((path for n in (README, "readme.md", "Readme.md") if (path := folder / n).is_file()), None)


def readme_faults(path: Path, runs: ForeignRuns, chosen: ForeignRuns = ()) -> list[str]:
    """Return claims of a README that no log has, nor the mean of the `chosen` runs, which were submitted."""
    if not (scored := [run for run in runs if run.has_score]):
        return []
    known = [v for run in scored for v in _scores(run)] + _means(scored, chosen)
    found: list[list[str]] = []  # in the order of the page
    tables: list[_SeedTable] = []
    is_table = False
    headline = None
    for where, text in _lines(path):
        if text.lstrip().startswith("|"):
            # Tildes around a word cross it out; one before a number says that it is rounded.
            cells = [re.sub(r"~~|[*`]", "", cell).strip() for cell in text.strip().strip("|").split("|")]
            # The first row of a table names its columns, and the first line without a bar ends the table.
            if not is_table:
                tables.append(_SeedTable([cell.lower() for cell in cells]))
                found.append(tables[-1].faults)
            is_table = True
            _judge_row(tables[-1], where, cells, scored)
            continue
        is_table = False
        if quoted := _quoted(text):
            if not any(quoted.agrees_with(v) for v in known):
                found.append([f"{where} quotes a score of {quoted.text}, which no log has"])
        # Only the first score in the text is taken for the submission's own: later ones may cite other people's.
        elif headline is None and (match := _HEADLINE.search(text)):
            headline = Figure(float(match[1]), where, match[1])
            if not any(headline.agrees_with(v) for v in known):
                found.append([f"{where} says val_bpb {headline.text}, which no log has"])
    # A table without one score of these logs, beside another that has some, is of another configuration.
    if any(table.agreed for table in tables):
        for table in tables:
            table.faults[:] = table.faults if table.agreed else []
    return list(dict.fromkeys(fault for faults in found for fault in faults))


def check_readme(folder: Path, logs: Logs, chosen: Submitted, claims: Claims | None, audit: Audit) -> None:
    """Add claims of the README that no log has to `audit`."""
    if (path := find_readme(folder)) is None:
        return
    scores = [
        Figure(float(number), path.name, number)
        for _, text in _lines(path)
        if not _SEED_ROW.match(text)
        for number in _NUMBER.findall(text)
    ]
    usual = [number for number in scores if TEXT_RANGE[0] < number.value < TEXT_RANGE[1]]
    if not chosen.runs:
        claimed = claims.figures.get("val_bpb") if claims else None
        if claimed and usual and not any(number.agrees_with(claimed.value) for number in scores):
            elsewhere = f"nowhere in {path.name}, which says {usual[0].text}"
            audit.untrue.append(f"{claimed.source} {claimed.text} is {elsewhere}")
    elif not logs.is_complete:
        audit.unchecked.append(f"the numbers of {path.name}: not every seed has its own log")
    else:
        faults = readme_faults(path, [*logs.last, *(run for run in chosen.runs if run in logs.earlier)], chosen.runs)
        of_seeds = [fault for fault in faults if " gives seed " in fault]
        others = [fault for fault in faults if fault not in of_seeds]
        mean = mean_bpb(chosen.runs)
        audit.untrue += of_seeds
        # A README that has its own score may well cite other submissions.
        (audit.look_at if any(n.agrees_with(mean) for n in scores) else audit.untrue).extend(others)


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (place, text) of the first lines; nothing of a file that is no text."""
    try:
        for count, (number, text) in enumerate(TextFile(path)):
            if count >= MOST_LINES:
                return
            yield f"{path.name}:{number}", text
    except UnreadableError:
        return


def _judge_row(table: _SeedTable, where: str, cells: Sequence[str], scored: ForeignRuns) -> None:
    """Write the wrong cells of a row that names a seed with exactly one log into its `table`."""
    named = _SEED_CELL.fullmatch(cells[0]) if cells else None
    logs = [run for run in scored if named and run.count("seed") == int(named[1])]
    if len(logs) != 1:
        return
    for column, cell in zip(table.header[1:], cells[1:], strict=False):
        if _OTHERS.search(column.replace("_", " ")):
            continue
        if (value := parse_number(re.sub(r"(?<!\s)\s*(?:bytes|B)$", "", cell))) is None:
            continue
        what, known = _cell_meaning(logs[0], column.strip(), cell, value)
        figure = Figure(value, where, cell.split()[0])
        # `<600` is a bound, not a measured number.
        if figure.text.strip("<>") != figure.text:
            continue
        if any(figure.agrees_with(v) for v in known):
            table.agreed += what == "score"
        elif known:
            table.faults.append(f"{where} gives seed {logs[0].count('seed')} a {what} of {cell}, its log does not")


def _cell_meaning(run: ForeignRun, column: str, cell: str, value: float) -> tuple[str, list[Figure]]:
    """Return the meaning of a number in a column and the figures that it may be; neither if it is no result."""
    if "." in cell and CELL_RANGE[0] <= value < CELL_RANGE[1] and len(cell.partition(".")[2]) >= CELL_DECIMALS:
        return "score", [*_scores(run), *(s.loss for s in run.scores if s.loss is not None)]
    if value != int(value):
        return "", []
    if 1_000_000 < value < LARGEST_SIZE and re.search("byte|size|artifact", column):
        return "size", run.present("total_bytes", "artifact_bytes")
    if column in ("steps", "step", "train steps", "training steps"):
        return "number of steps", run.present("steps")
    return "", []


def _quoted(text: str) -> Figure | None:
    """Return the score in a quoted log line, None for any other text."""
    line = read_line(text.strip().strip("`*- ")) if "bpb" in text else None
    if not isinstance(line, ScoreLine) or claimed_kind(line.tag) == OTHER:
        return None
    figure = Figure(line.val_bpb, "", line.bpb_text)
    return figure if len(line.bpb_text.partition(".")[2]) >= QUOTED_DECIMALS else None


def _scores(run: ForeignRun) -> list[Figure]:
    # A README may give the last validation in training where the log goes on to score averaged weights.
    return [*run.present("pre_quant_bpb", "val_bpb"), *(s.bpb for s in run.scores), *run.printed]


def _means(runs: ForeignRuns, chosen: ForeignRuns) -> list[Figure]:
    """Return the means of all runs, of the chosen ones and of each variant's, for every kind of score."""
    groups = [list(runs), list(chosen), *([r for r in runs if r.variant == v] for v in {r.variant for r in runs})]
    names = ("val_bpb", "pre_quant_bpb", "post_quant_bpb", "sliding_bpb", "ttt_bpb")
    figures = [[figure for run in group for figure in run.present(name)] for group in groups for name in names]
    return [mean_of(of_seeds) for of_seeds in figures if of_seeds]
