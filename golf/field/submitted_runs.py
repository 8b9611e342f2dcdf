"""The runs in a submission's logs, and among them those whose mean the claimed score is."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from golf.field.audit import Audit
from golf.field.figures import Figure, mean_of
from golf.field.folder_reader import ForeignFolder, read_folders
from golf.field.foreign_run import ForeignRun, ForeignRuns
from golf.field.run_audit import audit_runs, copies
from golf.field.scores import ARTIFACT_KINDS
from golf.field.submission_json import Claims
from golf.tables import grouped
from golf.words import counted, listed

KINDS = ("val", "post_quant", "sliding", "ttt")  # of scores of an artifact; `val` is the final one
COARSE = 0.01  # bpb; unit in the last place of a score that was not meant to be cut so short
NOT_LOGS = (".py", "Makefile")


@dataclass
class Logs:
    """The runs in the logs of a submission, each run once."""

    scored: list[ForeignRun] = field(default_factory=list)  # with a score of an artifact
    unscored: list[ForeignRun] = field(default_factory=list)
    copied: list[list[ForeignRun]] = field(default_factory=list)  # several logs of one run; the first of each counts
    earlier: list[ForeignRun] = field(default_factory=list)  # runs that another one follows in the same file
    missing_seeds: list[int] = field(default_factory=list)  # seeds in submission.json without a log

    @property
    def last(self) -> list[ForeignRun]:
        """The scored runs that no other one follows in the same file."""
        return [run for run in self.scored if run not in self.earlier]

    @property
    def is_complete(self) -> bool:
        """Tell whether every claimed seed has a log of its own."""
        return not self.missing_seeds and not any(names_several_seeds(same) for same in self.copied)


@dataclass(frozen=True)
class Submitted:
    """The likeliest submitted runs, and the reason why the claimed score is not theirs."""

    runs: list[ForeignRun]
    fault: str = ""


def read_logs(folder: Path, claims: Claims | None, audit: Audit) -> Logs:
    """Return every run of the logs in and below `folder`, without inner folders that are submissions of their own."""
    runs, empty, lines, unread = [], [], 0, 0
    for group in read_folders([folder]):
        inner = Path(os.path.relpath(group.folder, folder.absolute()))
        if group.claims is not None and inner != Path() and claims is not None:
            audit.unchecked.append(f"{inner}: a submission of its own, audit it by itself")
            continue
        skipped = {str(inner / name): why for name, why in group.skipped.items() if not name.endswith(NOT_LOGS)}
        empty += [f"{name} {why}" for name, why in skipped.items() if why == "is empty"]
        audit.unchecked += [f"{name}: {why}" for name, why in skipped.items() if why != "is empty"]
        runs += _logged_runs(group, folder)
        lines, unread = lines + group.lines, unread + group.not_understood
    if not runs:
        audit.unusable.append("there is no train log" + (f" with a run in it ({listed(empty)})" if empty else ""))
        return Logs()
    audit.look_at += empty
    audit.in_order.append(f"{counted(len(runs), 'run')} read from logs, {unread} of {counted(lines, 'line')} not read")
    return _sorted_out(runs, claims)


def _logged_runs(group: ForeignFolder, folder: Path) -> list[ForeignRun]:
    """Return the audited runs out of logs, named by their files' paths below `folder`."""
    runs = [run for run in group.runs if not run.files[0].lower().endswith(".json")]
    audit_runs(runs)
    for run in runs:
        path = os.path.relpath(Path(group.folder) / run.files[0], folder.absolute())
        run.name = path + (f" (run {run.name.rpartition('#')[2]})" if "#" in run.name.rpartition("/")[2] else "")
    return runs


def _sorted_out(runs: ForeignRuns, claims: Claims | None) -> Logs:
    """Return the runs without copies, and the claimed seeds that none of them has."""
    groups, runs = copies(runs)
    logs = Logs(copied=groups)
    logs.unscored = [run for run in runs if not run.has_score]
    logs.scored = [run for run in runs if run.has_score]
    files = [run.files[0] for run in runs]
    logs.earlier = [run for i, run in enumerate(runs) if run.files[0] in files[i + 1 :]]
    if claims is not None:
        claimed = dict.fromkeys([*claims.per_seed, *claims.seeds])
        printed = {run.seed for run in logs.scored}
        unseeded = [run for run in logs.scored if run.seed is None]
        logs.missing_seeds = [s for s in claimed if s not in printed and not any(r.may_be_of_seed(s) for r in unseeded)]
    return logs


def submitted(logs: Logs, claims: Claims | None) -> Submitted:
    """Return the runs whose mean is the claimed score; without such a claim or such runs, the likeliest."""
    if not (groups := _by_variant(logs)):
        return Submitted([])
    claimed = claims.figures.get("val_bpb") if claims else None
    if claims is None or claimed is None or not math.isfinite(claimed.value) or not logs.is_complete:
        return Submitted(groups[0])
    if claimed.unit_in_last_place >= COARSE:
        # JSON leaves out zeros at the end: 1.13 is 1.1300.
        claimed = replace(claimed, text=f"{claimed.value:.4f}")
    # The likeliest choices come first: the runs of the claimed seeds, then one variant's, then all.
    listed = [runs for group in groups if (runs := [run for run in group if run.seed in claims.seeds])]
    if by_seed := _of_claimed_seeds(logs, claims):
        listed.append(by_seed)
    # A cut number agrees with several means; a rounded one with the mean that was meant.
    for is_mean in (_rounds_to, Figure.agrees_with):
        for runs in [*listed, *groups, logs.last, logs.scored]:
            if any(is_mean(claimed, mean) for mean in means(runs, "bpb")):
                return _matching(claimed, runs, groups)
    return _not_matching(claimed, groups)


def means(runs: ForeignRuns, unit: str) -> Iterator[Figure]:
    """Yield the mean of each kind of score that all runs have; `unit` is `bpb` or `loss`."""
    yield from map(mean_of, _of_each_kind(runs, unit))


def claimed_scores(runs: ForeignRuns, claimed: Figure | None) -> list[Figure]:
    """Return a score in bits per byte of each run: those whose mean is the claimed one, else the final ones."""
    kinds = [scores for scores in _of_each_kind(runs, "bpb") if claimed and claimed.agrees_with(mean_of(scores))]
    return kinds[0] if kinds else [run.figures["val_bpb"] for run in runs]


def _of_each_kind(runs: ForeignRuns, unit: str) -> Iterator[list[Figure]]:
    """Yield the finite scores of each kind that all runs have."""
    for kind in KINDS:
        known = [run.figures[name] for run in runs if (name := f"{kind}_{unit}") in run.figures]
        if known and len(known) == len(runs) and all(math.isfinite(figure.value) for figure in known):
            yield known


def as_claimed(figure: Figure) -> str:
    """Return a claim with its source, as written."""
    return f"{figure.source} {figure.text}"


def mean_bpb(runs: ForeignRuns) -> float:
    """Return the mean of the final scores in bits per byte."""
    return statistics.fmean(run.bpb for run in runs)


def names_several_seeds(same: ForeignRuns) -> bool:
    """Tell whether the names of copies of one log have several seeds, so that the log of a seed is missing."""
    return len({run.named_seed for run in same} - {None}) > 1


def _rounds_to(claimed: Figure, mean: Figure) -> bool:
    return abs(claimed.value - mean.value) <= max(claimed.unit_in_last_place, mean.unit_in_last_place) / 2


def _of_claimed_seeds(logs: Logs, claims: Claims) -> list[ForeignRun]:
    """Return the run of every claimed seed that has its claimed score; none unless every seed has exactly one."""
    # 2026-04-29_SmearGateBOSFix_3Seed_1.06141 has two logs of each seed, and file names that make them three variants.
    matching = []
    for seed, claimed in claims.per_seed.items():
        score = claimed.get("val_bpb")
        runs = [run for run in logs.last if run.seed == seed and score and score.agrees_with(run.figures["val_bpb"])]
        if len(runs) != 1:
            return []
        matching += runs
    return matching


def _by_variant(logs: Logs) -> list[list[ForeignRun]]:
    """Group runs by variant, the outermost and largest group first: logs of ablations lie deeper or are fewer."""
    groups = grouped((run.variant, run) for run in logs.last)
    return sorted(groups.values(), key=lambda runs: (min(run.name.count("/") for run in runs), -len(runs)))


def _matching(claimed: Figure, runs: list[ForeignRun], groups: Sequence[list[ForeignRun]]) -> Submitted:
    """Return the runs of the claimed mean, with a fault if they are the best of a larger group."""
    # 2026-04-22_SP8192_CaseOps_GatedAttn_QuantGate claims the mean of the best five of its seven seeds.
    for group in groups:
        others = [run for run in group if run not in runs]
        if others and runs[0] in group and max(run.bpb for run in runs) <= min(run.bpb for run in others):
            return Submitted(group, _best_of(claimed, len(runs), group))
    return Submitted(runs)


def _not_matching(claimed: Figure, groups: Sequence[list[ForeignRun]]) -> Submitted:
    """Return the group that explains the claimed score, with the fault; the first group if none does."""
    for group in groups:
        for run in group:
            of_artifact = [score.bpb for score in run.scores if score.kind in ARTIFACT_KINDS]
            if any(map(claimed.agrees_with, [run.figures["val_bpb"], *of_artifact])):
                return Submitted(group, _one_of(claimed, run, group))
        lowest = sorted(group, key=lambda run: run.bpb)
        for count in range(2, len(group)):
            if claimed.agrees_with(mean_of([run.figures["val_bpb"] for run in lowest[:count]])):
                return Submitted(group, _best_of(claimed, count, group))
        before = [figure for run in group for figure in run.present("pre_quant_bpb")]
        if before and any(map(claimed.agrees_with, [*before, mean_of(before)])):
            fault = f"is the score before quantization: the artifact's is {mean_bpb(group):.6f}"
            return Submitted(group, f"{as_claimed(claimed)} {fault}")
    values = list(dict.fromkeys(f"{run.bpb:.6f}" for group in groups for run in group))
    mean = f" (mean {mean_bpb(groups[0]):.6f})" if len(groups[0]) > 1 else ""
    return Submitted(groups[0], f"{as_claimed(claimed)} is in no log: they say {listed(values)}{mean}")


def _one_of(claimed: Figure, run: ForeignRun, group: list[ForeignRun]) -> str:
    """Return the fault of a claimed score that is one run's; none if the group has no other run."""
    if len(group) == 1:
        return ""
    best = ", the best" if run.bpb == min(r.bpb for r in group) else ""
    mean = f"the mean of {len(group)} runs is {mean_bpb(group):.6f}"
    return f"{as_claimed(claimed)} is one run's{best} ({run.name}): {mean}"


def _best_of(claimed: Figure, count: int, group: list[ForeignRun]) -> str:
    """Return the fault of a claimed score that is the mean of the best runs only."""
    if count == 1:
        return _one_of(claimed, min(group, key=lambda run: run.bpb), group)
    mean = f"the mean of all is {mean_bpb(group):.6f}"
    return f"{as_claimed(claimed)} is of the best {count} of {len(group)} runs: {mean}"
