"""Folders of other people's runs, read as submissions: the runs of all logs, with the submission.json beside them."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from golf.errors import GolfError
from golf.field.figures import Figure
from golf.field.foreign_run import ForeignRun, foreign_run, scored_state
from golf.field.log_reader import ReadLog, read_log
from golf.field.loop_table import Try, is_table, read_table
from golf.field.submission_json import ANY_NAME, Claims, read_claims_file
from golf.field.text import ENDING, UnreadableError
from golf.run.result import CRASHED, OK

LOG_ENDINGS = (".log", ".txt", ".out", ".err", ".stdout", "")
EXAMPLES_KEPT = 5
PROSE = 0.5  # fraction of lines not understood from which on a file without a step is no log
CLAIMED_ONLY = "{}: this is what {} claims"
_SKIPPED_FOLDERS = {"node_modules", "__pycache__", "site-packages", "venv"}
_COMMON_NAMES = {
    *("log", "logs", "run", "runs", "result", "results", "out", "output", "outputs", "evidence", "train_logs"),
}


@dataclass
class ForeignFolder:
    """A submission: its runs, its claims, and the faults of the folder as a whole."""

    name: str
    folder: str
    runs: list[ForeignRun] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    claims: Claims | None = None
    lines: int = 0
    source_lines: int = 0
    not_understood: int = 0
    examples: list[str] = field(default_factory=list)  # of lines that were not understood
    skipped: dict[str, str] = field(default_factory=dict)  # file → reason why it has no run
    has_logs: bool = False

    @property
    def mark(self) -> str:
        """Six characters that tell folders of the same name apart."""
        return _mark(self.folder)


@dataclass
class _Group:
    folder: Path
    logs: list[Path] = field(default_factory=list)
    submissions: list[Path] = field(default_factory=list)
    tables: list[Path] = field(default_factory=list)  # that may be of tries


def read_folders(paths: Sequence[Path]) -> Iterator[ForeignFolder]:
    """Yield each submission in or below `paths`. Raises `GolfError` for a path that does not exist."""
    # Files of one folder that are named one by one are one submission, whose record holds all of them.
    groups: dict[Path, _Group] = {}
    for path in paths:
        if not path.exists():
            raise GolfError(f"{path} does not exist: name a log, a submission.json or a folder of them.")
        # One folder may be spelled in two ways.
        for found in _groups(Path(os.path.normpath(path.absolute()))):
            group = groups.setdefault(found.folder, _Group(found.folder))
            group.logs += [log for log in found.logs if log not in group.logs]
            group.submissions += found.submissions
            group.tables += [table for table in found.tables if table not in group.tables]
    taken: set[str] = set()
    for group in groups.values():
        name = _name_of(group.folder, taken)
        taken.add(name)
        yield _read_group(group, name)


def _groups(path: Path) -> Iterator[_Group]:
    """Yield the files of each submission: a folder with a submission.json owns all logs below it."""
    if path.is_file():
        is_json = path.suffix.lower() == ".json"
        is_log = not is_json and not is_table(path)
        yield _Group(path.parent, [path][:is_log], [path][:is_json], [path][: is_table(path)])
        return
    groups: dict[Path, _Group] = {}
    for folder, names in _walk(path):
        submissions = [folder / n for n in names if ANY_NAME.fullmatch(n)]
        logs = [folder / n for n in names if _may_be_log(n)]
        tables = [folder / n for n in names if is_table(folder / n)]
        if not submissions and not logs and not tables:
            continue
        # Folders come before the folders in them, so that an owner is known by now.
        owners = [] if submissions else [p for p in folder.parents if p in groups and groups[p].submissions]
        home = owners[0] if owners else folder
        group = groups.setdefault(home, _Group(home))
        group.logs += logs
        group.submissions += submissions
        group.tables += tables
    told = [group for group in groups.values() if group.logs or group.submissions]
    # A table beside folders of logs most likely sums up those.
    yield from told or groups.values()


def _walk(path: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield each folder with its files, outer folders first, in the order of their names."""
    if not os.access(path, os.R_OK | os.X_OK):
        raise GolfError(f"{path} cannot be read: you have no permission for it.")
    for folder, inner, names in os.walk(path):
        # os.walk descends into the folders that this list still holds, so it is changed in place.
        inner[:] = sorted(n for n in inner if not n.startswith(".") and n not in _SKIPPED_FOLDERS)
        yield Path(folder), sorted(names)


def _may_be_log(name: str) -> bool:
    """Tell whether a file's name is one that logs have."""
    ending = Path(name.lower().removesuffix(ENDING)).suffix
    is_numbered = re.fullmatch(r".*\.log\.\d+", name) is not None
    # requirements.txt ends as a log does and lies in many submissions.
    return (ending in LOG_ENDINGS or is_numbered) and not name.startswith((".", "requirements"))


def _read_group(group: _Group, name: str) -> ForeignFolder:
    """Read the logs and the claims of a submission."""
    read = ForeignFolder(name, str(group.folder.absolute()), has_logs=bool(group.logs))
    for path in group.logs:
        _add_log(read, path, group.folder)
    for path in group.submissions[:1]:
        read.claims = read_claims_file(path, str(path.relative_to(group.folder)))
        _add_claims(read, read.claims)
    # Logs and claims may tell of the very runs that stand in a table.
    read_table_rows = _skip_table if read.runs else _add_table
    for path in group.tables:
        read_table_rows(read, path, str(path.relative_to(group.folder)))
    for run in read.runs:
        run.folder = read.folder
    return read


def _add_log(into: ForeignFolder, path: Path, folder: Path) -> None:
    """Add the runs of a log and the numbers of its lines."""
    file = str(path.relative_to(folder))
    try:
        log = read_log(path, file)
    except UnreadableError as error:
        into.skipped[file] = str(error)
        return
    if not log.runs:
        empty = "holds no text" if path.stat().st_size else "is empty"
        into.skipped[file] = ", ".join(filter(None, ("no line of a run in it" if log.lines else empty, log.problem)))
        return
    if all(run.steps is None for run in log.runs) and log.not_understood > PROSE * log.lines:
        # Such a file is a prompt, a page or a summary.
        into.skipped[file] = "quotes scores, but is no log"
        return
    into.lines += log.lines
    into.source_lines += log.source_lines
    into.not_understood += log.not_understood
    into.examples += log.examples[: max(0, EXAMPLES_KEPT - len(into.examples))]
    runs = [_run_of_log(log, index, into.name, file) for index in range(1, len(log.runs) + 1)]
    # Equal bytes show copies of a log that has no score; the index keeps two runs of one file apart.
    with path.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    for index, run in enumerate(runs):
        run.digest = f"{digest}#{index}"
    into.runs += runs


def _run_of_log(log: ReadLog, index: int, folder_name: str, file: str) -> ForeignRun:
    """Return run `index` of a log, counted from 1. The last run has the file's name: it is the one that was scored."""
    logged, count = log.runs[index - 1], len(log.runs)
    stem = file
    for ending in (ENDING, *LOG_ENDINGS):
        stem = stem.removesuffix(ending) if ending else stem
    suffix = f"#{index}" if index < count else ""
    run = foreign_run(logged, f"{folder_name}/{stem}{suffix}", file)
    run.is_last_in_file = index == count
    run.variant = _variant(folder_name, _without_seed(stem, run.count("seed")) + suffix)
    if count > 1:
        run.faults.append(f"run {index} of {count} in one file, from line {logged.first_line} on")
    if log.problem:
        run.faults.append(f"{file}: {log.problem}")
    # A crash before the last figure did not end the run.
    if run.state == OK and logged.crash_line is not None and logged.crash_line >= logged.last_figure_line:
        run.faults.append(f"crashed after its last score: {logged.crash} ({file}:{logged.crash_line})")
    return run


def _add_claims(into: ForeignFolder, claims: Claims) -> None:
    """Give the runs the claimed track and machine. Where no log has a score, the claims become the runs."""
    ours = {"track": "track", "hardware": "machine"}
    texts = {ours[key]: text for key, text in claims.texts.items() if key in ours}
    for run in into.runs:
        for name, text in texts.items():
            # What the log itself prints goes before a claim.
            run.texts.setdefault(name, text)
    if any(run.has_score for run in into.runs):
        return
    scored = {seed: figures for seed, figures in claims.per_seed.items() if "val_bpb" in figures}
    claimed = [_claimed(into.name, claims, figures, seed) for seed, figures in scored.items()]
    if not any(run.has_score for run in claimed) and "val_bpb" in claims.figures:
        claimed.append(_claimed(into.name, claims, claims.figures, None))
    for run in claimed:
        run.texts = dict(texts)
        why = "no log has a score that is read" if into.has_logs else "there is no log"
        run.faults.insert(0, CLAIMED_ONLY.format(why, claims.name))
    if not claimed:
        into.skipped[claims.name] = claims.problem or "claims no score"
    into.runs += claimed


def _skip_table(into: ForeignFolder, path: Path, file: str) -> None:
    """Name a table whose tries are not taken as runs."""
    into.skipped[file] = f"is no log: if it is a table of tries, golf report {path.name} judges its keeps"


def _add_table(into: ForeignFolder, path: Path, file: str) -> None:
    """Make the tries of a table the runs of a folder."""
    try:
        table = read_table(path)
    except GolfError as error:
        into.skipped[file] = str(error).removeprefix(f"{path} ").rstrip(".")
        return
    into.lines += len(table.tries)
    into.runs += [_run_of_try(into.name, file, one) for one in table.tries]


def _run_of_try(name: str, file: str, one: Try) -> ForeignRun:
    """Return a row of a table as a run, which it is only by somebody's word."""
    run = ForeignRun(f"{name}/{one.name}:{one.line}", [file], digest=f"{file}:{one.line}")
    run.variant = _variant(name, f"{file} {one.same}")
    source = f"{file}:{one.line}"
    for key, value in (("seed", one.seed), ("total_bytes", one.artifact_bytes)):
        if value is not None:
            run.figures[key] = Figure(value, source, str(value))
    run.faults.append(f"a table says so ({file}), and no log of it was read")
    if one.bpb is None:
        run.state, run.reason = CRASHED, one.words or "no score stands in its row"
        return run
    run.figures["val_bpb"] = Figure(one.bpb, source, one.bpb_text)
    run.state, run.reason = scored_state(run)
    return run


def _claimed(name: str, claims: Claims, figures: dict[str, Figure], seed: int | None) -> ForeignRun:
    """Return claims for one seed, or for the whole submission, as a run."""
    own = dict(figures)
    if "model_bytes" in own:
        # Runs call the compressed model an artifact.
        own["artifact_bytes"] = own.pop("model_bytes")
    run = ForeignRun(f"{name}/{claims.name}" + (f"#seed{seed}" if seed is not None else ""), [claims.name], own)
    if seed is not None:
        run.figures["seed"] = Figure(seed, own["val_bpb"].source, str(seed))
    run.variant = _variant(name, claims.name)
    if run.has_score:
        run.state, run.reason = scored_state(run)
    if seed is None and len(claims.seeds) > 1:
        run.faults.append(f"its score is of {len(claims.seeds)} seeds together, not of one run")
    return run


def _name_of(folder: Path, taken: set[str]) -> str:
    """Return the folder's name, with its parent's before a common one, and with a mark if another folder has it."""
    path = folder.absolute()
    name = path.name or "runs"
    if name.lower() in _COMMON_NAMES and path.parent.name:
        name = f"{path.parent.name}_{name}"
    name = re.sub(r"[^\w.+=@-]+", "_", name).strip("._") or "runs"
    return name if name not in taken else f"{name}.{_mark(str(path))}"


def _mark(folder: str) -> str:
    return hashlib.sha1(folder.encode(errors="surrogateescape")).hexdigest()[:6]


def _variant(folder_name: str, stem: str) -> str:
    # Names of files need not be UTF-8; surrogates stand for their other bytes.
    return "i" + hashlib.sha1(f"{folder_name}/{stem}".encode(errors="surrogateescape")).hexdigest()[:9]


def _without_seed(stem: str, seed: int | None) -> str:
    """Return the common part of the names of a variant's logs: `train` of `train_seed42` and `train_seed7`."""
    if seed is not None:
        # A number behind a `v` is a version, even if it equals the seed.
        stem = re.sub(rf"(?<![\dv]){seed}(?!\d)", "", stem)
    # Names may give a seed that the log does not print, too.
    stem = re.sub(r"(?:seed|(?<![A-Za-z])s)[ _=-]?\d*(?![A-Za-z\d])", "", stem, flags=re.IGNORECASE)
    return re.sub(r"[ _.=-]+", "_", stem).strip("_/")
