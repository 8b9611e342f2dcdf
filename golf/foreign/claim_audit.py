"""What submission.json and README.md claim, against the logs and against the rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from golf.challenge import CAP_BYTES, EVAL_SECONDS, GRACE_SECONDS, TRAIN_SECONDS
from golf.foreign.claims import claims_of_seeds, claims_of_the_whole
from golf.foreign.figures import Figure
from golf.foreign.findings import Audit
from golf.foreign.foreign_run import ForeignRun
from golf.foreign.log_audit import OTHER_TRACKS, Logs, seed_of
from golf.foreign.readme_reader import readme_faults
from golf.foreign.score_claim import Submitted, loss_fault, own_mean_fault, spread_fault
from golf.foreign.submission_json import Claims
from golf.foreign.text import TextFile, UnreadableError

README = "README.md"
LOWEST_BPB, HIGHEST_BPB = 0.5, 4.0  # that a README can mean as a score
_SEED_ROW = re.compile(r"\s*\|\W*(?:seed\W*)?\d+\W*\|", re.IGNORECASE)
_NUMBER = re.compile(r"\b\d\.\d{4,}\b")
SEPARATE = {"val_bpb", "val_bpb_std"}  # claims of the whole that are looked at more closely here
_LIMITED = {"train_seconds": ("training", TRAIN_SECONDS + GRACE_SECONDS), "eval_seconds": ("scoring", EVAL_SECONDS)}


def check_claims(logs: Logs, chosen: Submitted, submission: Claims, code_bytes: int | None, found: Audit) -> None:
    """Every number that can be compared; `code_bytes` are those of the script, if there is one."""
    found.against_rules += _over_limits(chosen.runs, submission)
    if not chosen.runs:
        found.untrue += own_mean_fault(submission)
        return
    comparable = _comparable(chosen.runs, submission, code_bytes)
    if logs.missing_seeds or logs.copied:
        found.untrue += own_mean_fault(submission)
        found.unchecked.append("claims of all seeds together (score, loss, spread): not every seed has its own log")
    else:
        found.untrue += _broad_faults(chosen, comparable, found)
    found.untrue += claims_of_the_whole(chosen.runs, _without(comparable, SEPARATE))
    found.untrue += claims_of_seeds(chosen.runs, comparable)


def _comparable(runs: Sequence[ForeignRun], submission: Claims, code_bytes: int | None) -> Claims:
    """The claims of seeds that have a log, without what the script in the folder, other than the logs', makes right."""
    if code_bytes is None:
        return replace(submission, per_seed=_of_seeds(runs, submission))
    models = [v for run in runs if (v := run.value("artifact_bytes")) is not None]
    figures = {name: figure for name, figure in submission.figures.items() if name != "code_bytes"}
    if models and "total_bytes" in figures and figures["total_bytes"].agrees_with(max(models) + code_bytes):
        del figures["total_bytes"]
    per_seed = {
        seed: {
            name: figure
            for name, figure in claimed.items()
            if name != "total_bytes" or not any(figure.agrees_with(model + code_bytes) for model in models)
        }
        for seed, claimed in _of_seeds(runs, submission).items()
    }
    return replace(submission, figures=figures, per_seed=per_seed)


def _of_seeds(runs: Sequence[ForeignRun], submission: Claims) -> dict[int, dict[str, Figure]]:
    seeds = {seed_of(run) for run in runs}
    return {seed: figures for seed, figures in submission.per_seed.items() if seed in seeds}


def _without(submission: Claims, names: set[str]) -> Claims:
    return replace(submission, figures={k: v for k, v in submission.figures.items() if k not in names})


def _broad_faults(chosen: Submitted, submission: Claims, found: Audit) -> list[str]:
    """Of claims that are made for all seeds together. Loss and spread of another score are no further faults."""
    total = _total_fault(chosen.runs, submission, found)
    if chosen.fault:
        return [chosen.fault, *total]
    faults, look_at = spread_fault(chosen.runs, submission)
    found.look_at += look_at
    return [*loss_fault(chosen.runs, submission), *faults, *total]


def _over_limits(runs: Sequence[ForeignRun], submission: Claims) -> list[str]:
    """Claims that are over a budget; where a log has the same fault, it is the log that is told."""
    totals = [run.value("total_bytes") or 0 for run in runs]
    claimed = [submission.figures, *submission.per_seed.values()]
    sizes = [figures["total_bytes"] for figures in claimed if "total_bytes" in figures]
    faults = []
    if sizes and max(totals, default=0) <= CAP_BYTES:
        largest = max(sizes, key=lambda figure: figure.value)
        if (over := largest.value - CAP_BYTES) > 0:
            faults.append(f"{largest.source} {largest.value:,.0f} is over the cap of {CAP_BYTES:,} by {over:,.0f}")
    if OTHER_TRACKS.search(submission.texts.get("track", "")):
        return faults
    for name, (what, limit) in _LIMITED.items():
        times = [figures[name] for figures in claimed if name in figures]
        slowest = max(times, key=lambda figure: figure.value, default=None)
        if slowest and slowest.value > limit and not any((run.value(name) or 0) > limit for run in runs):
            faults.append(f"{slowest.source}: {what} took {slowest.value:,.1f} s, the budget is {TRAIN_SECONDS:g} s")
    return faults


def _total_fault(runs: Sequence[ForeignRun], submission: Claims, found: Audit) -> list[str]:
    """A size larger than any run's; one below the largest is found with the other claims."""
    claimed, code, model = (submission.figures.get(name) for name in ("total_bytes", "code_bytes", "model_bytes"))
    known = [v for run in runs if (v := run.value("total_bytes")) is not None]
    if claimed is None or not known:
        found.unchecked += ["bytes_total: no log gives a size"] * bool(claimed and runs)
        return []
    sums = [v + code.value for run in runs if code and (v := run.value("artifact_bytes")) is not None]
    if claimed.value <= max(known) or claimed.value > CAP_BYTES or any(map(claimed.agrees_with, [*known, *sums])):
        return []
    if model and code and claimed.agrees_with(model.value + code.value):
        return []  # the model's size is wrong, which is told
    return [f"{claimed.source} {claimed.value:,.0f} is no run's code and model: the largest has {max(known):,.0f}"]


def check_readme(folder: Path, logs: Logs, chosen: Submitted, submission: Claims | None, found: Audit) -> None:
    """Numbers of the README that no log has. One of something else is only to be looked at if its own are there."""
    path = next((p for n in (README, "readme.md", "Readme.md") if (p := folder / n).is_file()), None)
    if path is None:
        return
    scores = [number for number in _numbers(path) if LOWEST_BPB < number.value < HIGHEST_BPB]
    if not chosen.runs:
        claimed = submission.figures.get("val_bpb") if submission else None
        if claimed and scores and not any(number.agrees_with(claimed.value) for number in scores):
            found.untrue.append(
                f"{claimed.source} {claimed.text} is nowhere in {path.name}, which says {scores[0].text}"
            )
    elif logs.missing_seeds or logs.copied:
        found.unchecked.append(f"the numbers of {path.name}: not every seed has its own log")
    else:
        faults = readme_faults(path, [*logs.last, *(run for run in chosen.runs if run in logs.earlier)])
        of_seeds = [fault for fault in faults if " gives seed " in fault]
        others = [fault for fault in faults if fault not in of_seeds]
        mean = sum(run.value("val_bpb") or 0.0 for run in chosen.runs) / len(chosen.runs)
        found.untrue += of_seeds
        (found.look_at if any(n.agrees_with(mean) for n in scores) else found.untrue).extend(others)


def _numbers(path: Path) -> list[Figure]:
    """Those with the decimals of a score, without those of single seeds in a table."""
    try:
        lines = [text for _, text in TextFile(path) if not _SEED_ROW.match(text)]
    except UnreadableError:
        return []
    return [Figure(float(number), path.name, number) for text in lines for number in _NUMBER.findall(text)]
