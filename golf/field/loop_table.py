"""Tables of tries that loops of keep and discard write: results.tsv, leaderboards, sweeps of a driver."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from golf.errors import GolfError
from golf.field.figures import parse_number
from golf.field.text import TextFile, UnreadableError

ENDINGS = (".tsv", ".csv")
KEPT, DROPPED = "kept", "dropped"
# Headers, in the order in which they are preferred.
_NAMES = (
    *("commit", "version", "id", "exp_id", "run_id", "experiment", "exp_name", "run_name", "name", "variant"),
    *("variant_id", "label", "run", "trial", "iteration"),
)
_WORDS = (
    *("description", "idea", "change_description", "variable_changed", "hypothesis", "notes", "reasoning", "name"),
    *("run_name", "label"),
)
_DIGEST = "config_hash"  # a column that is equal for two runs of one configuration
_DECISIONS = "status", "decision", "kept", "verdict"
_KEPT = re.compile(r"keep|kept|accept|adopt|promot|improve|baseline|(?:new )?best|true|yes|✓", re.IGNORECASE)
_DROPPED = re.compile(r"disc|rev|rej|worse|drop|fail|crash|err|oom|timeout|invalid|null|false|no\b|✗", re.IGNORECASE)
# Words of columns in bits per byte that hold no score of the artifact.
_NO_SCORE = {
    *("gap", "gain", "delta", "tax", "train", "minus", "diff", "pre", "prequant", "fp", "fp32", "raw", "ema", "last"),
    *("matched", "control", "smoothed", "checkpoint", "std", "sd", "mean", "min", "max", "target", "ppm", "loss"),
}
_SEED = re.compile(r"(?<![A-Za-z\d])(?:seed|s)[ _=-]?(\d{1,10})(?![A-Za-z\d])", re.IGNORECASE)
_MEGABYTES = 1_000_000


@dataclass(frozen=True)
class Try:
    """One row: somebody's word on a run, of which no log is at hand."""

    name: str
    line: int
    bpb: float | None  # None for a crash
    bpb_text: str = ""
    words: str = ""  # what was tried
    decision: str = ""  # KEPT, DROPPED or what stands there
    seed: int | None = None
    artifact_bytes: int | None = None
    same: str = ""  # equal for runs of one configuration under several seeds; empty if that is not known


@dataclass
class LoopTable:
    """The tries of a table in their order."""

    file: str
    column: str  # header of the scores
    tries: list[Try] = field(default_factory=list)

    @property
    def scored(self) -> list[Try]:
        return [one for one in self.tries if one.bpb is not None]


def is_table(path: Path) -> bool:
    """Tell whether a file's name is one that such tables have."""
    return path.suffix.lower() in ENDINGS


def read_table(path: Path, column: str = "") -> LoopTable:
    """Return the tries in a table, with the scores of `column` or of the only one that they can be in.

    Raises `GolfError` for what is no such table, and if several columns could hold the scores.
    """
    lines = _lines(path)
    if (header := next(lines, None)) is None:
        raise GolfError(f"{path} is empty.")
    names = [name.strip() for name in header[1]]
    score = _score_column(path, names, column)
    if names[0].lower() in ("step", "steps", "iter") and "status" not in names:
        raise GolfError(f"{path} is the curve of one run, and no table of tries: name the run's log.")
    rows = []
    for number, cells in lines:
        # A file that was joined from several has their headers, too.
        if cells != header[1] and len(cells) > names.index(score):
            rows.append((number, dict(zip(names, (cell.strip() for cell in cells), strict=False))))
    name, settings = _name_column(names), _setting_columns(names, [row for _, row in rows], score)
    table = LoopTable(path.name, score, [_try(row, number, score, name, settings) for number, row in rows])
    if not table.scored:
        raise GolfError(f"{path} has no number below {score}.")
    return table


def _setting_columns(names: Sequence[str], rows: Sequence[dict[str, str]], score: str) -> list[str]:
    """Return the columns that may configure a run: several runs share a value there, and no measurement."""
    no_settings = {*_NAMES, *_WORDS, *_DECISIONS, "seed", "date", "timestamp", score.lower()}
    values = {name: [row.get(name, "") for row in rows] for name in names if name.lower() not in no_settings}
    return [name for name, found in values.items() if 2 * len(set(found)) <= len(found)]


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield line numbers and cells, from the header on."""
    lines = [(number, text) for number, text in _text(path) if not text.lstrip().startswith("#")]
    delimiter = "\t" if lines and "\t" in lines[0][1] else ","
    reader = csv.reader((text for _, text in lines), delimiter=delimiter, strict=False)
    try:
        for cells in reader:
            yield lines[min(reader.line_num, len(lines)) - 1][0], cells
    except csv.Error as error:
        raise GolfError(f"{path}: line {reader.line_num + 1} is no row of a table ({error}).") from error


def _text(path: Path) -> Iterator[tuple[int, str]]:
    try:
        yield from TextFile(path)
    except UnreadableError as error:
        raise GolfError(f"{path} {error}.") from error


def _score_column(path: Path, names: Sequence[str], wanted: str) -> str:
    if wanted:
        if wanted not in names:
            raise GolfError(f"{path} has no column {wanted}: name one of {', '.join(names)}.")
        return wanted
    words = {name: _words_in(name) for name in names}
    in_bits = [n for n in names if "bpb" in words[n] and not any(w in _NO_SCORE or w.isdigit() for w in words[n])]
    plain = [n for n in in_bits if words[n] <= {"val", "bpb", "final", "official", "best"}]
    final = [n for n in in_bits if words[n] & {"final", "exact"}]
    for found in (plain, final, in_bits):
        if len(found) == 1:
            return found[0]
    if in_bits:
        raise GolfError(f"{path} has several columns of scores: choose with --column one of {', '.join(in_bits)}.")
    raise GolfError(f"{path} has no column with a score in bits per byte, such as val_bpb.")


def _words_in(header: str) -> set[str]:
    """Return the words of a header such as `final_val_bpb` or `finalValBpb`."""
    return set(re.findall(r"[a-z]+\d*|\d+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", header).lower()))


def _name_column(names: Sequence[str]) -> str | None:
    known = {name.lower(): name for name in names}
    return next((known[name] for name in _NAMES if name in known), None)


def _try(row: dict[str, str], line: int, score: str, name_column: str | None, settings: Sequence[str]) -> Try:
    by_name = {name.lower(): value for name, value in row.items() if value}
    said = next((by_name[name] for name in _DECISIONS if name in by_name), "")
    decision = DROPPED if _DROPPED.match(said) else KEPT if _KEPT.match(said) else said
    words = next((by_name[name] for name in _WORDS if name in by_name), "")
    name = (row.get(name_column) if name_column else "") or f"row {line}"
    marked = _SEED.search(name.replace("_", " ")) or _SEED.search(words)
    seed = _whole(by_name.get("seed", marked[1] if marked else ""))
    bpb = parse_number(row[score])
    # Loops write 0 for a crash.
    is_score = bpb is not None and math.isfinite(bpb) and bpb > 0
    same = "\0".join([_configuration(by_name, name, words, seed), *(row.get(column, "") for column in settings)])
    return Try(name, line, bpb if is_score else None, row[score], words, decision, seed, _bytes(by_name), same)


def _configuration(row: dict[str, str], name: str, words: str, seed: int | None) -> str:
    """Return what names the configuration of a run: its digest, or its name without the seed; empty if nothing does."""
    if _DIGEST in row or seed is None:
        return row.get(_DIGEST, f"{name}\0{words}")
    return " ".join(re.sub(rf"(?<!\d){seed}(?!\d)", "", text) for text in (name, words))


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,10}", text) else None


def _bytes(row: dict[str, str]) -> int | None:
    """Return the bytes that count, as far as the table has them."""
    for name in ("total_bytes", "bytes_total", "artifact_bytes", "size_bytes", "submission_bytes", "artifact_mb"):
        value = parse_number(row.get(name, ""))
        if value is not None and value > 0 and math.isfinite(value):
            return round(value * _MEGABYTES) if name.endswith("_mb") else round(value)
    return None
