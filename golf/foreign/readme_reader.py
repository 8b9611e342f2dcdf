"""What a README says of runs whose logs lie beside it: its table of seeds, the lines it quotes, its headline."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from golf.foreign.figures import Figure, mean_of, parse_number
from golf.foreign.foreign_run import ForeignRun
from golf.foreign.log_lines import ScoreLine, read_line
from golf.foreign.scores import OTHER, claimed_kind
from golf.foreign.text import TextFile, UnreadableError

MOST_LINES = 5000
SCORE_RANGE = (0.5, 2.0)  # bits per byte that a table of results can hold; smaller ones are differences
_SEED_CELL = re.compile(r"(?:seed\s*)?(\d{1,9})", re.IGNORECASE)
_HEADLINE = re.compile(r"val[_ ]?bpb\W{0,6}(\d\.\d{4,})", re.IGNORECASE)
_QUOTED_DIGITS = 6


def readme_faults(path: Path, runs: Sequence[ForeignRun]) -> list[str]:
    """Numbers of a README that none of the logs beside it has."""
    scored = [run for run in runs if run.has_score]
    if not scored:
        return []
    known = [v for run in scored for v in _scores(run)] + _means(scored)
    faults: list[str] = []
    header: list[str] = []
    headline = None
    for where, text in _lines(path):
        if text.lstrip().startswith("|"):
            cells = [cell.strip().strip("*`~ ") for cell in text.strip().strip("|").split("|")]
            header = header or [cell.lower() for cell in cells]
            faults += _row_faults(where, header, cells, scored)
            continue
        header = []
        if quoted := _quoted(text):
            if not any(quoted.agrees_with(v) for v in known):
                faults.append(f"{where} quotes a score of {quoted.text}, which no log has")
        elif headline is None and (match := _HEADLINE.search(text)):
            headline = Figure(float(match[1]), where, match[1])
            if not any(headline.agrees_with(v) for v in known):
                faults.append(f"{where} says val_bpb {headline.text}, which no log has")
    return list(dict.fromkeys(faults))


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    try:
        for count, (number, text) in enumerate(TextFile(path)):
            if count >= MOST_LINES:
                return
            yield f"{path.name}:{number}", text
    except UnreadableError:
        return


def _row_faults(where: str, header: Sequence[str], cells: Sequence[str], scored: Sequence[ForeignRun]) -> Iterator[str]:
    """A row of a table that names a seed, against that seed's log, if there is exactly one."""
    named = _SEED_CELL.fullmatch(cells[0]) if cells else None
    logs = [run for run in scored if named and run.count("seed") == int(named[1])]
    if len(logs) != 1:
        return
    run = logs[0]
    for column, cell in zip(header[1:], cells[1:], strict=False):
        value, what = parse_number(re.sub(r"\s*(?:bytes|B)$", "", cell)), ""
        if value is None:
            continue
        figure = Figure(value, where, cell.split()[0])
        if "." in cell and SCORE_RANGE[0] <= value < SCORE_RANGE[1] and len(cell.partition(".")[2]) >= 4:
            found, what = [*_scores(run), *_losses(run)], "score"
        elif (
            value == int(value)
            and 1_000_000 < value < 10**9
            and ("byte" in column or "size" in column or "artifact" in column)
        ):
            found, what = [run.figures[k] for k in ("total_bytes", "artifact_bytes") if k in run.figures], "size"
        elif column.strip() in ("steps", "step", "train steps", "training steps") and value == int(value):
            found, what = [run.figures[k] for k in ("steps",) if k in run.figures], "number of steps"
        if what and found and not any(figure.agrees_with(v) for v in found):
            yield f"{where} gives seed {run.count('seed')} a {what} of {cell}, its log does not"


def _quoted(text: str) -> Figure | None:
    line = read_line(text.strip().strip("`*- ")) if "bpb" in text else None
    if not isinstance(line, ScoreLine) or claimed_kind(line.tag) == OTHER:
        return None
    figure = Figure(line.val_bpb, "", line.bpb_text)
    return figure if len(line.bpb_text.partition(".")[2]) >= _QUOTED_DIGITS else None


def _scores(run: ForeignRun) -> list[Figure]:
    named = [run.figures[name] for name in ("pre_quant_bpb", "val_bpb") if name in run.figures]
    return [*named, *(Figure(s.val_bpb, "", s.bpb_text) for s in run.scores)]


def _losses(run: ForeignRun) -> list[Figure]:
    return [Figure(s.val_loss, "", s.loss_text) for s in run.scores if s.val_loss is not None]


def _means(runs: Sequence[ForeignRun]) -> list[Figure]:
    """Of all runs and of each variant's, for every kind of score."""
    groups = [list(runs), *([r for r in runs if r.variant == v] for v in {r.variant for r in runs})]
    names = ("val_bpb", "pre_quant_bpb", "post_quant_bpb", "sliding_bpb", "ttt_bpb")
    figures = [[run.figures[name] for run in group if name in run.figures] for group in groups for name in names]
    return [mean_of(found) for found in figures if found]
