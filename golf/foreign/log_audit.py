"""The train logs of a submission: which of their runs were submitted, and what the logs themselves show to be wrong."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from golf.challenge import EVAL_SECONDS
from golf.foreign.claims import shown
from golf.foreign.findings import Audit
from golf.foreign.folder_reader import ForeignFolder, collect
from golf.foreign.foreign_run import ForeignRun
from golf.foreign.run_audit import copies, implied_bytes, named_seed, rule_faults, seed_faults, shard_faults
from golf.foreign.submission_json import Claims

OTHER_TRACKS = re.compile(r"non[_-]?record|unlimited", re.IGNORECASE)
_APPENDED = re.compile(r"run \d+ of \d+ in one file")
_NOT_COUNTED = ": not counted"


@dataclass
class Logs:
    """Runs out of logs, each run once."""

    scored: list[ForeignRun] = field(default_factory=list)  # with a score of an artifact
    unscored: list[ForeignRun] = field(default_factory=list)
    copied: list[list[ForeignRun]] = field(default_factory=list)  # several logs of one run; the first of each stays
    earlier: list[ForeignRun] = field(default_factory=list)  # not the last run of its file
    missing_seeds: list[int] = field(default_factory=list)  # that submission.json names and no log has
    has_runs: bool = False

    @property
    def last(self) -> list[ForeignRun]:
        """Without runs that another one follows in the same file."""
        return [run for run in self.scored if run not in self.earlier]


def seed_of(run: ForeignRun) -> int | None:
    """As printed, else as the file is named."""
    printed = run.count("seed")
    return named_seed(run.files[0]) if printed is None else printed


def read_logs(folder: Path, submission: Claims | None, found: Audit) -> Logs:
    """Every run of the logs in and below `folder`; a folder inside that is a submission of its own is left out."""
    groups, empty = [], []
    for group in collect([folder]):
        inner = Path(os.path.relpath(group.folder, folder.absolute()))
        if group.submission is not None and inner != Path() and submission is not None:
            found.unchecked.append(f"{inner}: a submission of its own, audit it by itself")
            continue
        groups.append(group)
        skipped = {
            str(inner / name): why for name, why in group.skipped.items() if not name.endswith((".py", "Makefile"))
        }
        empty += [f"{name} {why}" for name, why in skipped.items() if why == "is empty"]
        found.unchecked += [f"{name}: {why}" for name, why in skipped.items() if why != "is empty"]
    runs = [run for group in groups for run in _runs_of(group, folder)]
    if not runs:
        found.unusable.append("there is no train log" + (f" with a run in it ({shown(empty)})" if empty else ""))
        return Logs()
    found.look_at += empty
    unread, lines = sum(group.not_understood for group in groups), sum(group.lines for group in groups)
    found.in_order.append(f"{counted(len(runs), 'run')} read from logs, {unread} of {lines:,} lines not understood")
    return _sorted_out(runs, submission)


def _runs_of(group: ForeignFolder, folder: Path) -> list[ForeignRun]:
    """Those out of logs, named by their files as seen from `folder`."""
    runs = [run for run in group.runs if not run.files[0].lower().endswith(".json")]
    for run in runs:
        path = os.path.relpath(Path(group.folder) / run.files[0], folder.absolute())
        run.name = path + (f" (run {run.name.rpartition('#')[2]})" if "#" in run.name.rpartition("/")[2] else "")
    return runs


def _sorted_out(runs: Sequence[ForeignRun], submission: Claims | None) -> Logs:
    logs = Logs(has_runs=True, unscored=[run for run in runs if not run.has_score])
    # of several copies the one stays that is named as it should be
    logs.copied = [sorted(same, key=lambda run: bool(seed_faults(run))) for same in copies(runs)]
    dropped = [id(run) for same in logs.copied for run in same[1:]]
    logs.scored = [run for run in runs if run.has_score and id(run) not in dropped]
    files = [run.files[0] for run in runs]
    logs.earlier = [run for i, run in enumerate(runs) if run.files[0] in files[i + 1 :]]
    if submission is not None:
        claimed = dict.fromkeys([*submission.per_seed, *submission.seeds])
        seeds = {seed_of(run) for run in logs.scored}
        logs.missing_seeds = [seed for seed in claimed if seed not in seeds]
    return logs


def check_logs(logs: Logs, submitted: Sequence[ForeignRun], found: Audit) -> None:
    """What the logs of the submitted runs show; the same of other logs is only to be looked at."""
    beside = [run for run in logs.last if run not in submitted]
    found.against_rules += _each(submitted, rule_faults)
    found.look_at += _each(beside, rule_faults)
    found.untrue += _each(submitted, _contradictions)
    found.look_at += _each([*submitted, *beside], _doubts)
    found.look_at += _each(submitted, _slow_together)
    found.untrue += shard_faults(submitted)
    for same in logs.copied:
        found.untrue.append(f"{shown([run.name for run in same])} are copies of one run: add the log of the other")
    _appended(logs, submitted, found)
    _seeds(logs, submitted, beside, found)
    _unscored(logs, found)
    texts = [run for run in submitted if run.value("val_tokens") and run.value("val_loss")]
    if texts and not any("of text" in fault for run in texts for fault in rule_faults(run)):
        found.in_order.append(f"{counted(len(texts), 'log')} scored the whole validation split, 151.08 MB of text")
    if texts:
        loss, bpb, tokens = (texts[0].figures[name].value for name in ("val_loss", "val_bpb", "val_tokens"))
        found.scored = int(tokens), implied_bytes(loss, bpb, tokens)
    if submitted and len(texts) < len(submitted):
        why = "no log says" if not texts else f"{len(submitted) - len(texts)} of {len(submitted)} logs do not say"
        found.unchecked.append(f"the bytes of the scored text: {why} how many tokens were scored")


def _each(runs: Sequence[ForeignRun], check: Callable[[ForeignRun], list[str]]) -> list[str]:
    """The sentences of all runs, the same one of several runs once."""
    names: dict[str, list[str]] = {}
    for run in runs:
        for sentence in check(run):
            names.setdefault(sentence, []).append(run.name)
    return [f"{shown(of)}: {sentence}" for sentence, of in names.items()]


def _slow_together(run: ForeignRun) -> list[str]:
    """Scores that fit into the budget one by one: only what the last one needs has to."""
    seconds = run.value("eval_seconds") or 0.0
    if seconds <= EVAL_SECONDS or any("scoring took" in fault for fault in rule_faults(run)):
        return []
    return [f"scoring took {seconds:,.1f} s in all: what the score that counts needs has to fit {EVAL_SECONDS:g} s"]


def _doubts(run: ForeignRun) -> list[str]:
    """How its scores were read: a tag is no rule, so that a wrong one is no fault (R11, R19 and R22 have such tags)."""
    doubts = {score.doubt for score in run.scores} - {""}
    return [fault for fault in run.faults if fault in doubts or fault.endswith(_NOT_COUNTED)]


def _contradictions(run: ForeignRun) -> list[str]:
    """What is left of a run's faults: sizes that do not add up, a crash after the score, a log that is cut off."""
    others = {*rule_faults(run), *seed_faults(run), *_doubts(run)}
    return [fault for fault in run.faults if fault not in others and not _APPENDED.match(fault)]


def _appended(logs: Logs, submitted: Sequence[ForeignRun], found: Audit) -> None:
    """Several runs in one file, of which the last is taken for the one that counts (R08)."""
    for file in dict.fromkeys(run.files[0] for run in logs.earlier):
        if any(run in submitted for run in logs.earlier if run.files[0] == file):
            found.in_order.append(f"{file} holds the logs of several seeds, one after another")
            continue
        count = 1 + sum(run.files[0] == file for run in logs.earlier)
        found.untrue.append(f"{file} holds {count} runs, of which the last was read as the one that counts")


def _seeds(logs: Logs, submitted: Sequence[ForeignRun], beside: Sequence[ForeignRun], found: Audit) -> None:
    """Seeds that are not what names or claims say (N69, R01, R40)."""
    by_seed: dict[int, list[str]] = {}
    for run in submitted:
        if (seed := run.count("seed")) is not None:
            by_seed.setdefault(seed, []).append(run.name)
    explained = {named_seed(run.files[0]) for same in logs.copied for run in same}
    for seed, names in by_seed.items():
        if len(names) > 1:
            found.untrue.append(
                f"{len(names)} logs print seed {seed} ({shown(names)}): they are one seed, not {len(names)}"
            )
    for run in submitted:
        if named := seed_faults(run):
            explained.add(named_seed(run.files[0]))
            if len(by_seed[run.count("seed") or 0]) == 1:
                found.untrue += [f"{run.name}: {fault}" for fault in named]
    alike = {seed_of(run) for run in [*submitted, *beside]} - {None}
    if len(submitted) == 1 and len(beside) > 1 and len(alike) == 1:
        names = [run.name for run in [*submitted, *beside]]
        found.look_at.append(
            f"all logs print seed {shown(sorted(alike, key=str))} ({shown(names)}): no sample of seeds"
        )
    ended = {seed_of(run) for run in logs.unscored}
    if missing := [seed for seed in logs.missing_seeds if seed not in explained | ended]:
        found.untrue.append(f"submission.json names seed {shown(missing)}, of which there is no log: add it")


def _unscored(logs: Logs, found: Audit) -> None:
    """Logs without a score: a fault where submission.json has one for their seed."""
    for run in logs.unscored:
        sentence = f"{run.name}: {run.reason}"
        (found.untrue if seed_of(run) in logs.missing_seeds else found.look_at).append(sentence)


def counted(number: int, noun: str) -> str:
    """`1 log`, `3 logs`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")
