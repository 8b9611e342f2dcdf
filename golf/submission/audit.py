"""Looking at a submission, anybody's: what is wrong with the folder, what is in order, what could not be checked.

Logs and claims are read by `golf.imports`; this adds the folder's files, its script, its seeds and its significance.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from golf.config import RulesConfig
from golf.errors import GolfError
from golf.imports.collection import Imported, collect
from golf.imports.foreign import ForeignRun
from golf.report.rows import RunRow, bytes_per_token
from golf.report.variants import Variant
from golf.report.verdicts import BETTER, judge
from golf.submission.judgement import sentence
from golf.submission.manifest import core_problems
from golf.submission.runs import OTHER_TRACK, RECORD_BYTES, RECORD_TRACK, SEEDS_WANTED
from golf.submission.source import imported_packages, read_script, suspicions

SCRIPT, JSON, README = "train_gpt.py", "submission.json", "README.md"
NOT_CHECKED = (
    "whether the script trains to these scores: nothing was run",
    "legality by behaviour (causality, normalisation, one pass): only the script's own text was read",
)


@dataclass
class Audit:
    """`faults` contradict the rules or each other, `look_at` may; `unchecked` says what nobody looked at."""

    faults: list[str] = field(default_factory=list)
    look_at: list[str] = field(default_factory=list)
    in_order: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)


def audit(folder: Path, reference: Variant | float | None, rules: RulesConfig) -> Audit:
    """Look at everything in `folder`."""
    if not folder.is_dir():
        raise GolfError(f"{folder} is no folder: name a submission's.")
    found = Audit(unchecked=list(NOT_CHECKED))
    values = _files(folder, found)
    imported = _logs(folder, found)
    runs = [run for run in imported.runs if run.has_score] if imported else []
    code_bytes = _script(folder, found)
    if code_bytes is not None:
        _code_size(code_bytes, values, runs, found)
    _seeds(folder, values, runs, found)
    _significance(runs, reference, rules, found)
    return found


def _files(folder: Path, found: Audit) -> dict[str, Any]:
    """Structure, and the content of submission.json as far as it is an object."""
    for name in (README, JSON, SCRIPT):
        if not (folder / name).is_file():
            similar = [p.name for p in folder.iterdir() if p.name.lower().replace("bb", "b") == name.lower()]
            found.faults.append(f"there is no {name}" + (f", but {similar[0]}" if similar else ""))
    try:
        values = json.loads((folder / JSON).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    problems = core_problems(values)
    found.look_at += problems  # no schema was ever enforced
    if not problems:
        found.in_order.append(f"{JSON} has every field of the core, of the right type")
    return values if isinstance(values, dict) else {}


def _logs(folder: Path, found: Audit) -> Imported | None:
    """Every log with what it says of itself and of the claims; of several groups the first that has runs."""
    groups = list(collect([folder]))
    for group in groups:
        found.faults += [fault for fault in group.faults if not fault.endswith(" there is no submission.json")]
        found.faults += [f"{run.name}: {fault}" for run in group.runs for fault in run.faults]
        found.unchecked += [f"{name}: {why}" for name, why in group.skipped.items()]
    own = next((group for group in groups if group.runs), None)
    if own is None or not any(not run.files[0].endswith(".json") for run in own.runs):
        found.faults.append("there is no train log")
        return None
    logs = [run for run in own.runs if not run.files[0].endswith(".json")]
    found.in_order.append(f"{len(logs)} runs read from logs, {own.not_understood} of {own.lines} lines not understood")
    if not any(run.value("val_tokens") for run in logs):
        found.unchecked.append("the bytes of the scored text: no log says how many tokens it scored")
    return own


def _script(folder: Path, found: Audit) -> int | None:
    """The script as it would be counted; what it seems to do that it should not."""
    path = folder / SCRIPT
    if not path.is_file():
        found.unchecked.append(f"code bytes, imports and forbidden patterns: there is no {SCRIPT}")
        return None
    script = read_script(path)
    if script.problem:
        found.faults.append(script.problem)
    if script.tree is None:
        found.unchecked.append(f"imports and forbidden patterns: {SCRIPT} cannot be read")
        return path.stat().st_size
    if script.layers:
        found.in_order.append(f"{SCRIPT} unpacks ({', '.join(script.layers)}) to {len(script.text.encode()):,} bytes")
    packages = imported_packages(script.tree)
    beside = sorted(name for name in packages if (folder / f"{name}.py").is_file() or (folder / name).is_dir())
    found.faults += [f"{SCRIPT} imports {name} from the folder: all code counts, and belongs in it" for name in beside]
    found.look_at += [f"{SCRIPT}: {suspicion}" for suspicion in suspicions(script.tree)]
    others = sorted(packages - {"torch", "numpy", "sentencepiece"} - set(beside))
    listed = (folder / "requirements.txt").read_text() if (folder / "requirements.txt").is_file() else ""
    if missing := [name for name in others if name.lower().replace("_", "-") not in listed.lower().replace("_", "-")]:
        found.look_at.append(f"{SCRIPT} imports {', '.join(missing)}, which no requirements.txt names")
    return path.stat().st_size


def _code_size(code_bytes: int, values: dict[str, Any], runs: list[ForeignRun], found: Audit) -> None:
    claimed = values.get("bytes_code", values.get("code_bytes"))
    if isinstance(claimed, int) and claimed != code_bytes:
        found.faults.append(f"bytes_code is {claimed:,}, {SCRIPT} has {code_bytes:,}: another script was counted")
    logged = {size for run in runs if (size := run.count("code_bytes")) is not None}
    if logged and code_bytes not in logged:
        sizes = ", ".join(f"{size:,}" for size in sorted(logged))
        found.look_at.append(f"the logs count {sizes} bytes of code, {SCRIPT} has {code_bytes:,}")
    for run in runs:
        model = run.count("artifact_bytes")
        if model is not None and model + code_bytes > RECORD_BYTES:
            over = model + code_bytes - RECORD_BYTES
            found.faults.append(f"{run.name}: model and {SCRIPT} are {over:,} bytes over {RECORD_BYTES:,}")


def _seeds(folder: Path, values: dict[str, Any], runs: list[ForeignRun], found: Audit) -> None:
    track = str(values.get("track", ""))
    is_other = "non" in track or OTHER_TRACK in str(folder)
    wanted = SEEDS_WANTED[OTHER_TRACK if is_other else RECORD_TRACK]
    seeds = {run.count("seed") for run in runs} - {None}
    if runs and len(seeds) < wanted:
        found.look_at.append(f"{len(seeds)} seeds in the logs: a record wants {wanted}")
    elif runs:
        found.in_order.append(f"{len(seeds)} seeds in the logs")


def _significance(runs: list[ForeignRun], reference: Variant | float | None, rules: RulesConfig, found: Audit) -> None:
    if reference is None:
        found.unchecked.append("significance: no --reference was given")
        return
    if not runs:
        found.unchecked.append("significance: there is no run with a score")
        return
    mine = Variant("submission", "submission", tuple(_rows(runs)))
    verdict = judge([mine], reference, rules)[mine.id]
    (found.in_order if verdict.kind == BETTER else found.look_at).append(sentence(verdict, reference, rules))


def _rows(runs: list[ForeignRun]) -> Iterator[RunRow]:
    """The runs as far as a verdict needs them."""
    for run in runs:
        loss, bpb = run.value("val_loss"), run.value("val_bpb")
        yield RunRow(
            "submission",
            run.name,
            run.count("seed"),
            val_bpb=bpb,
            val_loss=loss,
            bytes_per_token=bytes_per_token(loss, bpb),
        )
