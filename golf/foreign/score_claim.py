"""The score that a submission claims, and the runs that it is the score of."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from golf.foreign.claims import shown
from golf.foreign.figures import Figure, mean_of
from golf.foreign.foreign_run import ForeignRun
from golf.foreign.log_audit import Logs, seed_of
from golf.foreign.scores import ARTIFACT_KINDS
from golf.foreign.submission_json import Claims

KINDS = ("val", "post_quant", "sliding", "ttt")  # of scores of an artifact, the one that counts first
COARSE = 0.01  # nobody means a score to so few digits
LAST_DIGITS = 2.0  # units in the last place that a spread may be off for having been computed from rounded scores


@dataclass(frozen=True)
class Submitted:
    """`runs` are those that were submitted as far as can be told, `fault` says why the score is not theirs."""

    runs: list[ForeignRun]
    fault: str = ""
    is_matched: bool = False  # the claimed score is the mean of `runs`


def submitted(logs: Logs, submission: Claims | None) -> Submitted:
    """The runs whose mean is the claimed score; where there is no such claim or no such runs, the likeliest."""
    groups = _groups(logs)
    if not groups:
        return Submitted([])
    claimed = submission.figures.get("val_bpb") if submission else None
    if submission is None or claimed is None or not math.isfinite(claimed.value):
        return Submitted(groups[0])
    if claimed.unit_in_last_place >= COARSE:
        claimed = replace(claimed, text=f"{claimed.value:.4f}")  # JSON leaves out zeros: 1.13 is 1.1300
    if logs.missing_seeds or logs.copied:
        return Submitted(groups[0])  # its mean cannot be the claimed one
    candidates = [*_listed(groups, submission), *groups, logs.last, logs.scored]
    for is_it in (_rounds_to, Figure.agrees_with):
        for runs in candidates:
            if any(is_it(claimed, mean) for mean in _means(runs, "bpb")):
                return Submitted(*_chosen(claimed, runs, groups), is_matched=True)
    return Submitted(*_not_the_mean(claimed, groups))


def _rounds_to(claimed: Figure, mean: Figure) -> bool:
    """Closer than a cut number may be: of several that it could be, the one that it is."""
    return abs(claimed.value - mean.value) <= max(claimed.unit_in_last_place, mean.unit_in_last_place) / 2


def _groups(logs: Logs) -> list[list[ForeignRun]]:
    """Runs of one variant, the outermost and largest first: logs of ablations lie deeper or are fewer."""
    groups: dict[str, list[ForeignRun]] = {}
    for run in logs.last:
        groups.setdefault(run.variant, []).append(run)
    return sorted(groups.values(), key=lambda runs: (min(run.name.count("/") for run in runs), -len(runs)))


def _listed(groups: Sequence[Sequence[ForeignRun]], submission: Claims) -> Iterator[list[ForeignRun]]:
    """Of every variant the runs of the seeds that are named."""
    for group in groups:
        if runs := [run for run in group if seed_of(run) in submission.seeds]:
            yield runs


def _means(runs: Sequence[ForeignRun], unit: str) -> Iterator[Figure]:
    """Of every kind of score that all the runs have."""
    for name in (f"{kind}_{unit}" for kind in KINDS):
        known = [run.figures[name] for run in runs if name in run.figures]
        if known and len(known) == len(runs) and all(math.isfinite(figure.value) for figure in known):
            yield mean_of(known)


def _chosen(
    claimed: Figure, runs: list[ForeignRun], groups: Sequence[list[ForeignRun]]
) -> tuple[list[ForeignRun], str]:
    """The matching runs, unless they are the best of more (R42, five of seven)."""
    for group in groups:
        others = [run for run in group if run not in runs]
        if others and runs[0] in group and max(map(_bpb, runs)) <= min(map(_bpb, others)):
            return _best_of(claimed, len(runs), group)
    return runs, ""


def _not_the_mean(claimed: Figure, groups: Sequence[list[ForeignRun]]) -> tuple[list[ForeignRun], str]:
    """What the claimed score is instead."""
    for group in groups:
        lowest = sorted(group, key=_bpb)
        for count in range(2, len(group)):
            if claimed.agrees_with(mean_of([run.figures["val_bpb"] for run in lowest[:count]])):
                return _best_of(claimed, count, group)
        if same := [run for run in group if any(map(claimed.agrees_with, _artifact_scores(run)))]:
            return group, _of_one(claimed, same[0], group)
        before = [run.figures["pre_quant_bpb"] for run in group if "pre_quant_bpb" in run.figures]
        if before and any(map(claimed.agrees_with, [*before, mean_of(before)])):
            mean = statistics.fmean(map(_bpb, group))
            return group, f"{_as_claimed(claimed)} is the score before quantization: the artifact's is {mean:.6f}"
    values = [f"{_bpb(run):.6f}" for group in groups for run in group]
    their = f" (mean {statistics.fmean(map(_bpb, groups[0])):.6f})" if len(groups[0]) > 1 else ""
    return groups[0], f"{_as_claimed(claimed)} is in no log: they say {shown(values)}{their}"


def _artifact_scores(run: ForeignRun) -> list[Figure]:
    others = [Figure(score.val_bpb, "", score.bpb_text) for score in run.scores if score.kind in ARTIFACT_KINDS]
    return [run.figures["val_bpb"], *others]


def _of_one(claimed: Figure, run: ForeignRun, group: list[ForeignRun]) -> str:
    if len(group) == 1:
        return ""
    best = ", the best" if _bpb(run) == min(map(_bpb, group)) else ""
    mean = statistics.fmean(map(_bpb, group))
    return f"{_as_claimed(claimed)} is one run's{best} ({run.name}): the mean of {len(group)} runs is {mean:.6f}"


def _best_of(claimed: Figure, count: int, group: list[ForeignRun]) -> tuple[list[ForeignRun], str]:
    if count == 1:
        return group, _of_one(claimed, min(group, key=_bpb), group)
    mean = statistics.fmean(map(_bpb, group))
    return group, f"{_as_claimed(claimed)} is of the best {count} of {len(group)} runs: the mean of all is {mean:.6f}"


def loss_fault(runs: Sequence[ForeignRun], submission: Claims) -> list[str]:
    """A claimed loss that is neither the mean of the runs nor one run's."""
    claimed = submission.figures.get("val_loss")
    scores = [s for run in runs for s in run.scores if s.kind in ARTIFACT_KINDS]
    known = [*_means(runs, "loss"), *(Figure(s.val_loss, "", s.loss_text) for s in scores if s.val_loss is not None)]
    if claimed is None or not known or any(map(claimed.agrees_with, known)):
        return []
    return [f"{_as_claimed(claimed)} is in no log: their mean is {known[0].value:.6f}"]


def spread_fault(runs: Sequence[ForeignRun], submission: Claims) -> tuple[list[str], list[str]]:
    """(faults, to look at) of a claimed standard deviation: seeds are a sample, with n - 1 in it."""
    claimed = submission.figures.get("val_bpb_std")
    if claimed is None or len(runs) < 2:
        return [], []
    scores = [_bpb(run) for run in runs]
    sample, population = statistics.stdev(scores), statistics.pstdev(scores)
    digits = mean_of([run.figures["val_bpb"] for run in runs]).text
    if claimed.agrees_with(Figure(sample, "", digits)):
        return [], []
    if claimed.agrees_with(Figure(population, "", digits)):
        return [f"{_as_claimed(claimed)} is the population's ({len(runs)} in it), the sample's is {sample:.5f}"], []
    sentence = f"{_as_claimed(claimed)} is not the logs': their sample standard deviation is {sample:.5f}"
    is_near = abs(claimed.value - sample) < LAST_DIGITS * claimed.unit_in_last_place
    return ([], [sentence]) if is_near else ([sentence], [])


def own_mean_fault(submission: Claims) -> list[str]:
    """Where logs are missing: the claimed score against the mean of the seeds' that stand beside it."""
    claimed = submission.figures.get("val_bpb")
    values = [figures["val_bpb"].value for figures in submission.per_seed.values() if "val_bpb" in figures]
    if claimed is None or len(values) < 2 or claimed.agrees_with(statistics.fmean(values)):
        return []
    return [f"{_as_claimed(claimed)} is not the mean of its own seeds' {statistics.fmean(values):.6f}"]


def _as_claimed(figure: Figure) -> str:
    return f"{figure.source} {figure.text}"


def _bpb(run: ForeignRun) -> float:
    value = run.value("val_bpb")
    assert value is not None  # only runs with a score are asked
    return value
