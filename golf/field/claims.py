"""The numbers that submission.json claims, compared with the runs in the logs and with the limits of the challenge."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from golf.challenge import CAP_BYTES, EVAL_SECONDS, GRACE_SECONDS, TRAIN_SECONDS
from golf.field.audit import Audit
from golf.field.figures import ABOUT, Figure, mean_of
from golf.field.foreign_run import ForeignRun, ForeignRuns, is_unlimited_track
from golf.field.scores import ARTIFACT_KINDS, names_no_artifact
from golf.field.submission_json import Claims
from golf.field.submitted_runs import Logs, Submitted, as_claimed, claimed_scores, means, submitted
from golf.words import listed

SAME_PACE = 0.003  # relative difference of times that counting the last step or not explains
ROUNDED_SECONDS = 0.0025  # by which a sum of up to five times is off when a log prints each in whole milliseconds
SMALLEST_BYTES = 1_000_000  # that anybody meant as the size of a submission
LAST_DIGITS = 2.0  # units in the last place by which a spread of rounded scores is off
_TIMES = ("step_ms", "eval_seconds", "train_seconds")
_MEAN = re.compile(r"mean|avg|average")
_LIMITS = {"train_seconds": ("training", TRAIN_SECONDS + GRACE_SECONDS), "eval_seconds": ("scoring", EVAL_SECONDS)}


def check_claims(logs: Logs, chosen: Submitted, claims: Claims, code_bytes: int | None, audit: Audit) -> None:
    """Add every wrong claim to `audit`; `code_bytes` is the size of the submission's script, if there is one."""
    # A claim over a budget is a fault without any log, so the budgets come first.
    audit.against_rules += _over_limits(chosen.runs, claims)
    if not chosen.runs:
        audit.untrue += _own_mean_faults(claims)
        return
    seeds = {run.seed for run in chosen.runs}
    of_logs = replace(claims, per_seed={seed: f for seed, f in claims.per_seed.items() if seed in seeds})
    comparable = of_logs if code_bytes is None else _without_sizes_of_script(chosen.runs, of_logs, code_bytes)
    if logs.is_complete:
        faults, look_at = _score_faults(chosen, comparable)
        audit.untrue += [*faults, *_excess_bytes(chosen.runs, comparable)]
        audit.look_at += look_at
        if "total_bytes" in comparable.figures and not _values(chosen.runs, "total_bytes"):
            audit.unchecked.append("bytes_total: no log gives a size")
    else:
        audit.untrue += _own_mean_faults(claims)
        audit.unchecked.append("claims of all seeds together (score, loss, spread): not every seed has its own log")
    audit.untrue += [
        *_figure_faults(chosen.runs, comparable, logs.last),
        *_seed_faults(chosen.runs, comparable, logs.last),
    ]


def claim_faults(runs: ForeignRuns, claims: Claims, code_bytes: int | None = None) -> list[str]:
    """Return every claim that the runs of an imported folder contradict, those about single seeds first."""
    if code_bytes and (claimed := claims.figures.get("code_bytes")) and claimed.agrees_with(code_bytes):
        claims = _without_sizes_of_script(runs, claims, code_bytes)
    faults = _seed_faults(runs, claims)
    if (score := claims.figures.get("val_bpb")) and not math.isfinite(score.value):
        faults.append(f"{as_claimed(score)} is no score")
    if scored := [run for run in runs if run.has_score]:
        faults += _score_faults(submitted(Logs(scored=scored), claims), claims)[0]
        faults += _figure_faults(scored, claims)
    return faults


def _seed_faults(runs: ForeignRuns, claims: Claims, beside: ForeignRuns = ()) -> list[str]:
    """Return claims about a seed that its log contradicts, and seeds without a log.

    A claim may be of a rerun of the seed, which is one of the runs `beside`.
    """
    faults = []
    for seed, claimed in claims.per_seed.items():
        logs = [run for run in runs if run.seed == seed and run.has_score]
        if runs and not any(run.may_be_of_seed(seed) for run in (*runs, *beside)):
            faults.append(f"{claims.name} gives seed {seed}, there is no log of seed {seed}")
        # With several logs of one seed it is open which of them the claim is of.
        if len(logs) != 1:
            continue
        for name, figure in claimed.items():
            reruns = [run for run in beside if run.seed == seed and run is not logs[0]]
            known = [figure for run in (logs[0], *reruns) for figure in _known(run, name)]
            if known and not any(figure.agrees_with(f) or _is_same_time(name, figure, f) for f in known):
                faults.append(f"{figure.source} is {_written(figure)}, the log says {_number(name, known[0].value)}")
    return faults


def _is_same_time(name: str, claimed: Figure, logged: Figure) -> bool:
    """Tell whether two times differ by no more than how they were counted and rounded."""
    slack = SAME_PACE * logged.value + (ROUNDED_SECONDS if name == "eval_seconds" else 0.0)
    return name in _TIMES and abs(claimed.value - logged.value) <= slack


def _known(run: ForeignRun, name: str) -> list[Figure]:
    """Return the figures of a run that a claim of this name may mean, the likeliest first."""
    # A claim does not say which of the run's scores it means: any will do.
    named = run.present(name)
    if name == "val_bpb":
        return [*named, *(s.bpb for s in run.scores), *run.printed]
    if name == "val_loss":
        return [*named, *(s.loss for s in run.scores if s.loss is not None)]
    if name == "total_bytes":
        return run.present("total_bytes", "artifact_bytes")  # "artifact bytes" are the model's or all
    if name == "pre_quant_bpb":
        # The tag of a log of the training alone may be `final`, which elsewhere is the artifact's.
        return [*named, *(s.bpb for s in run.scores if names_no_artifact(s)), *run.printed]
    if name == "model_bytes":
        return run.present("artifact_bytes")
    if name == "eval_seconds":
        # The last score is the likeliest; what it needs may have been done in several passes, each with a score.
        timed = [(round(s.val_bpb, 3), s.seconds) for s in reversed(run.scores) if s.seconds is not None]
        known = [*(seconds for _, seconds in timed), *accumulate(dict(timed).values())]
        return [*run.present("total_eval_seconds"), *(Figure(seconds, "") for seconds in known), *named]
    steps, seconds = run.value("steps"), run.value("train_seconds")
    return [*named, Figure(seconds * 1000 / steps, "")] if name == "step_ms" and steps and seconds else named


def _score_faults(chosen: Submitted, claims: Claims) -> tuple[list[str], list[str]]:
    """Return (faults, sentences to look at) of the score, loss and spread that are claimed for all seeds together."""
    # Loss and spread of a wrong score would be the same fault again.
    if chosen.fault:
        return [chosen.fault], []
    faults, look_at = _spread_faults(claimed_scores(chosen.runs, claims.figures.get("val_bpb")), claims, "the logs'")
    return [*_loss_faults(chosen.runs, claims), *faults], look_at


def _loss_faults(runs: ForeignRuns, claims: Claims) -> list[str]:
    """Return a claimed loss that is neither the mean of the runs nor one run's."""
    claimed = claims.figures.get("val_loss")
    of_artifact = [s.loss for run in runs for s in run.scores if s.kind in ARTIFACT_KINDS and s.loss is not None]
    known = [*means(runs, "loss"), *of_artifact]
    if claimed is None or not known or any(map(claimed.agrees_with, known)):
        return []
    before = [figure for run in runs for figure in run.present("pre_quant_loss")]
    if before and claimed.agrees_with(mean_of(before)):
        return [f"{as_claimed(claimed)} is the loss before quantization: the artifact's is {known[0].value:.6f}"]
    return [f"{as_claimed(claimed)} is in no log: their mean is {known[0].value:.6f}"]


def _spread_faults(scores: Sequence[Figure], claims: Claims, whose: str) -> tuple[list[str], list[str]]:
    """Return (faults, sentences to look at) of a claimed standard deviation of `scores`, which are `whose`."""
    if (claimed := claims.figures.get("val_bpb_std")) is None or len(scores) < 2:
        return [], []
    # Seeds are a sample: n - 1 in the denominator, which makes the deviation of three seeds 22 % larger.
    sample, population = (f([score.value for score in scores]) for f in (statistics.stdev, statistics.pstdev))
    digits = mean_of(scores).text
    if claimed.agrees_with(Figure(sample, "", digits)):
        return [], []
    if claimed.agrees_with(Figure(population, "", digits)):
        return [f"{as_claimed(claimed)} is the population's ({len(scores)} in it), the sample's is {sample:.5f}"], []
    sentence = f"{as_claimed(claimed)} is not {whose}: their sample standard deviation is {sample:.5f}"
    is_near = abs(claimed.value - sample) < LAST_DIGITS * claimed.unit_in_last_place
    return ([], [sentence]) if is_near else ([sentence], [])


def _excess_bytes(runs: ForeignRuns, claims: Claims) -> list[str]:
    """Return a claimed size that is larger than every run's."""
    claimed, code, model = (claims.figures.get(name) for name in ("total_bytes", "code_bytes", "model_bytes"))
    known = _values(runs, "total_bytes")
    if claimed is None or not known:
        return []
    sums = [model_bytes + code.value for model_bytes in _values(runs, "artifact_bytes")] if code else []
    # A size over the cap is a fault already, and `_figure_faults` tells one below the largest run's.
    if claimed.value <= max(known) or claimed.value > CAP_BYTES or any(map(claimed.agrees_with, [*known, *sums])):
        return []
    if model and code and claimed.agrees_with(model.value + code.value):
        # The model's size is wrong, which is a fault of its own.
        return []
    return [f"{claimed.source} {claimed.value:,.0f} is no run's code and model: the largest has {max(known):,.0f}"]


def _figure_faults(runs: ForeignRuns, claims: Claims, beside: ForeignRuns = ()) -> list[str]:
    """Return claims that hold for one run or as a mean, and for none here; they can be checked with seeds missing.

    A score before quantization may stand in the log of the training, which is one of the runs `beside`.
    """
    faults = []
    lacks_seeds = not {*claims.seeds, *claims.per_seed} <= {run.seed for run in runs}
    total, known = claims.figures.get("total_bytes"), _values(runs, "total_bytes")
    # "Artifact bytes" are the model's or all.
    if total and "artifact" in total.source and any(map(total.agrees_with, _values(runs, "artifact_bytes"))):
        total = None
    if total and known and SMALLEST_BYTES < total.value < max(known) - total.unit_in_last_place:
        below = f"{max(known) - total.value:,.0f} below the largest run's {max(known):,.0f}"
        faults.append(f"{total.source} {total.value:,.0f} is {below}")
    elif total and known and total.value <= SMALLEST_BYTES < min(known):
        faults.append(f"{total.source} {total.value:,.0f} is not a submission's size, the logs say {max(known):,.0f}")
    for name in ("code_bytes", "model_bytes", "pre_quant_bpb", "steps"):
        claimed = claims.figures.get(name)
        others = beside if name == "pre_quant_bpb" else ()
        figures = [figure for run in (*runs, *others) for figure in _known(run, name)]
        if claimed and lacks_seeds and _MEAN.search(claimed.source.lower()):
            continue
        named = [figure for run in runs for figure in run.present(name)] or figures
        if claimed and figures and not any(map(claimed.agrees_with, [*figures, mean_of(figures), mean_of(named)])):
            numbers = listed([_number(name, value) for value in dict.fromkeys(figure.value for figure in named)])
            faults.append(f"{claimed.source} is {_written(claimed)}, the logs say {numbers}")
    return faults


def _own_mean_faults(claims: Claims) -> list[str]:
    """Return a claimed score or deviation that is not that of the claimed seeds, for submissions with logs missing."""
    claimed = claims.figures.get("val_bpb")
    by_seed = {seed: figures["val_bpb"] for seed, figures in claims.per_seed.items() if "val_bpb" in figures}
    scores = list(by_seed.values())
    if claimed is None or len(scores) < 2:
        return []
    mean = mean_of(scores).value
    if claimed.agrees_with(mean):
        return _spread_faults(scores, claims, "its own seeds'")[0]
    named = [by_seed[seed] for seed in claims.seeds if seed in by_seed]
    if named and claimed.agrees_with(mean_of(named).value):
        return [f"{as_claimed(claimed)} is of {len(named)} of its {len(scores)} seeds: the mean of all is {mean:.6f}"]
    return [f"{as_claimed(claimed)} is not the mean of its own seeds' {mean:.6f}"]


def _over_limits(runs: ForeignRuns, claims: Claims) -> list[str]:
    """Return claims over a budget. A log with the same fault is told in its place."""
    claimed = [claims.figures, *claims.per_seed.values()]
    sizes = [figures["total_bytes"] for figures in claimed if "total_bytes" in figures]
    largest = max(sizes, key=lambda figure: figure.value, default=None)
    faults = []
    if largest and largest.value > CAP_BYTES and max(_values(runs, "total_bytes"), default=0) <= CAP_BYTES:
        over = f"over the cap of {CAP_BYTES:,} by {largest.value - CAP_BYTES:,.0f}"
        faults.append(f"{largest.source} {largest.value:,.0f} is {over}")
    if is_unlimited_track(claims.texts.get("track", "")):
        return faults
    for name, (what, limit) in _LIMITS.items():
        times = [figures[name] for figures in claimed if name in figures]
        slowest = max(times, key=lambda figure: figure.value, default=None)
        if slowest and slowest.value > limit and not any(seconds > limit for seconds in _values(runs, name)):
            faults.append(f"{slowest.source}: {what} took {slowest.value:,.1f} s, the budget is {TRAIN_SECONDS:g} s")
    return faults


def _without_sizes_of_script(runs: ForeignRuns, claims: Claims, code_bytes: int) -> Claims:
    """Return the claims without sizes that the script in the folder makes right."""
    # The script in the folder may be another form of the one that the logs ran.
    totals = [model + code_bytes for model in _values(runs, "artifact_bytes")]
    # `check_code_size` compares the claimed code with the script itself, so that claim is left out here.
    whole = {"code_bytes"}
    if totals and "total_bytes" in claims.figures and claims.figures["total_bytes"].agrees_with(max(totals)):
        whole.add("total_bytes")
    of_seeds = {
        seed: {n: f for n, f in figures.items() if n != "total_bytes" or not any(map(f.agrees_with, totals))}
        for seed, figures in claims.per_seed.items()
    }
    return replace(claims, figures={n: f for n, f in claims.figures.items() if n not in whole}, per_seed=of_seeds)


def _values(runs: ForeignRuns, name: str) -> list[float]:
    """Return the runs' figures of this name that are not rounded, as sizes in MB are."""
    return [figure.value for run in runs for figure in run.present(name) if figure.unit_in_last_place <= 1]


def _written(figure: Figure) -> str:
    if isinstance(figure.value, int) and figure.value > 9999:
        return f"{'~' if figure.text.startswith(ABOUT) else ''}{figure.value:,}"
    return figure.text or f"{figure.value:g}"


def _number(name: str, value: float) -> str:
    return f"{value:.6f}" if name.endswith(("bpb", "loss")) else f"{value:,.10g}"
