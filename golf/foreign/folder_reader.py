"""Files and folders of other people's runs, gathered into submissions: logs with the submission.json beside them."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from golf.errors import GolfError
from golf.foreign.foreign_run import ForeignRun, foreign_run
from golf.foreign.log_reader import ReadLog, read_log
from golf.foreign.readme_reader import readme_faults
from golf.foreign.run_audit import audit_folder, audit_run
from golf.foreign.submission_json import FILE_NAME, Claims, read_claims_file
from golf.foreign.text import ENDING, UnreadableError
from golf.run.result import OK

LOG_ENDINGS = (".log", ".txt", ".out", ".err", ".stdout", "")
_SKIPPED_FOLDERS = {"node_modules", "__pycache__", "site-packages", "venv"}
_TELLS_NOTHING = {
    "log",
    "logs",
    "run",
    "runs",
    "results",
    "result",
    "out",
    "output",
    "outputs",
    "evidence",
    "train_logs",
}
CLAIMED_ONLY = "there is no log: this is what {} claims"


@dataclass
class ForeignFolder:
    """One submission: the runs of a folder, and what is wrong with the folder as a whole."""

    name: str
    folder: str
    runs: list[ForeignRun] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    submission: Claims | None = None
    lines: int = 0
    source_lines: int = 0
    not_understood: int = 0
    examples: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # file → why nothing of it is here

    @property
    def mark(self) -> str:
        """Tells apart folders of the same name."""
        return _mark(self.folder)


@dataclass
class _Group:
    folder: Path
    logs: list[Path] = field(default_factory=list)
    submissions: list[Path] = field(default_factory=list)


def collect(paths: Sequence[Path]) -> Iterator[ForeignFolder]:
    """A submission at a time, in the order of the paths. Raises `GolfError` for a path that is not there."""
    taken: set[str] = set()
    for path in paths:
        if not path.exists():
            raise GolfError(f"{path} does not exist: name a log, a submission.json or a folder of them.")
        for group in _groups(path):
            name = _name_of(group.folder, taken)
            taken.add(name)
            yield _import(group, name)


def _groups(path: Path) -> Iterator[_Group]:
    if path.is_file():
        is_json = path.suffix.lower() == ".json"
        yield _Group(path.parent, [] if is_json else [path], [path] if is_json else [])
        return
    groups: dict[Path, _Group] = {}
    for folder, names in _walk(path):
        submissions = [folder / n for n in names if FILE_NAME.fullmatch(n)]
        logs = [folder / n for n in names if _may_be_log(n)]
        home = (
            folder
            if submissions
            else next((p for p in folder.parents if p in groups and groups[p].submissions), folder)
        )
        if submissions or logs:
            group = groups.setdefault(home, _Group(home))
            group.logs += logs
            group.submissions += submissions
    yield from groups.values()


def _walk(path: Path) -> Iterator[tuple[Path, list[str]]]:
    """Folders before what is in them, each with its files, in the order of their names."""
    for folder, inner, names in os.walk(path):
        inner[:] = sorted(n for n in inner if not n.startswith(".") and n not in _SKIPPED_FOLDERS)
        yield Path(folder), sorted(names)


def _may_be_log(name: str) -> bool:
    ending = Path(name).suffix.lower()
    if ending == ENDING:
        ending = Path(Path(name).stem).suffix.lower()
    is_numbered = re.fullmatch(r".*\.log\.\d+", name) is not None
    return (ending in LOG_ENDINGS or is_numbered) and not name.startswith((".", "requirements"))


def _import(group: _Group, name: str) -> ForeignFolder:
    found = ForeignFolder(name, str(group.folder.absolute()))
    for path in group.logs:
        _add_log(found, path, group.folder)
    for path in group.submissions[:1]:
        found.submission = read_claims_file(path, str(path.relative_to(group.folder)))
        _add_claims(found, found.submission)
    for run in found.runs:
        run.folder = found.folder
        audit_run(run)
    found.faults += audit_folder(found.runs, found.submission)
    readme = next((p for n in ("README.md", "readme.md", "Readme.md") if (p := group.folder / n).is_file()), None)
    if readme is not None and group.logs:
        found.faults += readme_faults(readme, found.runs)
    return found


def _add_log(found: ForeignFolder, path: Path, folder: Path) -> None:
    file = str(path.relative_to(folder))
    try:
        log = read_log(path, file)
    except UnreadableError as error:
        found.skipped[file] = str(error)
        return
    if not log.runs:
        found.skipped[file] = "is empty" if not log.lines else "no line of a run in it"
        return
    found.lines += log.lines
    found.source_lines += log.source_lines
    found.not_understood += log.not_understood
    found.examples += log.examples[: max(0, 5 - len(found.examples))]
    for index, run in enumerate(log.runs, start=1):
        found.runs.append(_of_log(foreign_run(run, "", file), log, index, found.name, file))


def _of_log(run: ForeignRun, log: ReadLog, index: int, folder_name: str, file: str) -> ForeignRun:
    """The last run of a file has the file's name: it is the one that was scored."""
    count = len(log.runs)
    stem = file
    for ending in (ENDING, *LOG_ENDINGS):
        stem = stem.removesuffix(ending) if ending else stem
    suffix = f"#{index}" if index < count else ""
    run.name = f"{folder_name}/{stem}{suffix}"
    run.variant = _variant(folder_name, _without_seed(stem, run.count("seed")) + suffix)
    if count > 1:
        run.faults.append(f"run {index} of {count} in one file, from line {log.runs[index - 1].first_line} on")
    if log.problem:
        run.faults.append(f"{file}: {log.problem}")
    crash = log.runs[index - 1]
    if run.state == OK and crash.crash_line is not None and crash.crash_line >= crash.last_figure_line:
        run.faults.append(f"crashed after its last score: {crash.crash} ({file}:{crash.crash_line})")
    return run


def _add_claims(found: ForeignFolder, submission: Claims) -> None:
    """Where no log has a score, the claims of submission.json are the runs."""
    for run in found.runs:
        for name in ("track", "hardware"):
            if name in submission.texts:
                run.texts.setdefault("machine" if name == "hardware" else name, submission.texts[name])
    if any(run.has_score for run in found.runs):
        return
    for seed, figures in submission.per_seed.items():
        if "val_bpb" in figures:
            found.runs.append(_claimed(found.name, submission, figures, seed))
    if not any(run.has_score for run in found.runs) and "val_bpb" in submission.figures:
        found.runs.append(_claimed(found.name, submission, submission.figures, None))


def _claimed(name: str, submission: Claims, figures: dict, seed: int | None) -> ForeignRun:
    own = dict(figures)
    if "model_bytes" in own:
        own["artifact_bytes"] = own.pop("model_bytes")
    run = ForeignRun(f"{name}/{submission.name}" + (f"#seed{seed}" if seed is not None else ""), [submission.name], own)
    if seed is not None:
        run.figures["seed"] = own["val_bpb"].__class__(seed, own["val_bpb"].source, str(seed))
    run.variant = _variant(name, submission.name)
    run.texts = {k: v for k, v in submission.texts.items() if k in ("track",)}
    if "hardware" in submission.texts:
        run.texts["machine"] = submission.texts["hardware"]
    run.faults.append(CLAIMED_ONLY.format(submission.name))
    if seed is None and len(submission.seeds) > 1:
        run.faults.append(f"its score is of {len(submission.seeds)} seeds together, not of one run")
    return run


def _name_of(folder: Path, taken: set[str]) -> str:
    """The folder's own name, with its parent's where it tells nothing, and a mark where another one has it."""
    path = folder.absolute()
    name = path.name or "runs"
    if name.lower() in _TELLS_NOTHING and path.parent.name:
        name = f"{path.parent.name}_{name}"
    name = re.sub(r"[^\w.+=@-]+", "_", name).strip("._") or "runs"
    return name if name not in taken else f"{name}.{_mark(str(path))}"


def _mark(folder: str) -> str:
    return hashlib.sha1(folder.encode(errors="surrogateescape")).hexdigest()[:6]


def _variant(folder_name: str, stem: str) -> str:
    return "i" + hashlib.sha1(f"{folder_name}/{stem}".encode(errors="surrogateescape")).hexdigest()[:9]


def _without_seed(stem: str, seed: int | None) -> str:
    """What the logs of one variant have in common: `train_seed42` and `train_seed7` are both `train`."""
    if seed is not None:
        stem = re.sub(rf"(?<![\dv]){seed}(?!\d)", "", stem)
    stem = re.sub(r"(?:seed|(?<![A-Za-z])s)[ _=-]?\d*(?![A-Za-z\d])", "", stem, flags=re.IGNORECASE)
    return re.sub(r"[ _.=-]+", "_", stem).strip("_/")
