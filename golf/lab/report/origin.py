"""Split a difference into training, steps, quantization and evaluation, and say what it is at equal bytes.

What more or fewer steps bring is the slope of the score over the logarithm of the steps: that of the compared runs
where they tell it, else that of the public records.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from golf.errors import GolfError
from golf.lab.report.blocks import POOLED, Floats
from golf.lab.report.comparison import are_pairs
from golf.lab.report.findings import Findings, variant_name
from golf.lab.report.rows import RunRow, is_score
from golf.lab.report.sequential import SequentialComparison
from golf.lab.report.statistics import KNOWN_SIGMA, ROUNDING, Comparison, paired, welch
from golf.lab.report.texts import FINEWEB, OLDER_FINEWEB
from golf.lab.report.variants import Variant
from golf.lab.report.verdicts import BETTER
from golf.words import counted, interval_text, signed

MOST_EXPLAINED = 3  # variants, the best first
# Scores of a run in the order in which they are taken; each but the first adds a part to the one before.
STAGES = {"before quantization": "pre_quant_bpb", "by quantization": "post_quant_bpb", "by evaluation": "val_bpb"}
AT_EQUAL_STEPS, BY_STEPS, AT_EQUAL_BYTES = "before quantization at equal steps", "by steps", "at equal bytes"
FEWER_STEPS = 0.005  # a smaller share of the steps says nothing
SLOPE_SHOWS = 0.05  # p above which runs do not tell what a step is worth
LENGTH = ("schedule.iterations", "budget.train_seconds")  # settings by which runs differ in length alone
MOST_STEPS = 10**12  # no run takes more
MOST_RATIO = 2.0  # of steps, over which the score is taken for a line over their logarithm
# Bits per byte for a unit of log steps, and its standard error: 113 runs of 37 configurations of the public records,
# within each. Below are the steps that these have.
PUBLIC_SLOPE, PUBLIC_SLOPE_SD, PUBLIC_STEPS = -0.037, 0.009, (3_000, 15_000)
PUBLIC_TEXTS = (FINEWEB, OLDER_FINEWEB)
# What a bit less for each weight multiplies the quantization gap by: steps are twice as wide. It holds to a fifth.
GAP_PER_BIT, GAP_ERROR, MOST_BITS = 4.0, 0.2, 1.0
Pair = tuple[Variant, Variant]  # a variant and its reference


@dataclass(frozen=True)
class Part:
    """A part of a difference, or what it is at equal bytes, in bits per byte."""

    part: str
    difference_bpb: float
    interval_bpb: tuple[float, float] | None = None  # None at one seed, and where all runs have the same

    def __str__(self) -> str:
        within = f" ({interval_text(self.interval_bpb)})" if self.interval_bpb else ""
        return f"{signed(self.difference_bpb)} {self.part}{within}"

    @property
    def values(self) -> dict[str, Any]:
        """Return the part for programs."""
        low, high = self.interval_bpb or (None, None)
        named = {"part": self.part.replace(" ", "_"), "difference_bpb": self.difference_bpb}
        return {**named, "interval_low_bpb": low, "interval_high_bpb": high}


def about_origins(findings: Findings) -> Iterator[str]:
    """Yield a sentence for each of the best variants that are better, on what their difference is made of."""
    reference = findings.reference
    if not isinstance(reference, Variant) or findings.score != "final":
        return
    better = [v for v in findings.variants if v.id in findings.verdicts and findings.verdicts[v.id].kind == BETTER]
    for variant in better[:MOST_EXPLAINED]:
        comparison, among = findings.verdicts[variant.id].comparison, findings.study.variants
        pair = _compared(findings, variant, reference)
        if told := explained(pair, among, comparison, findings.rules.confidence):
            yield f"{variant_name(findings, variant)}: {told}"


def parts_for_programs(findings: Findings, variant: Variant) -> list[dict[str, Any]] | None:
    """Return the parts of a variant's difference, and what it is at equal bytes; None where no final scores compare."""
    reference, verdict = findings.reference, findings.verdicts.get(variant.id)
    if not isinstance(reference, Variant) or findings.score != "final" or not (verdict and verdict.comparison):
        return None
    pair, confidence = _compared(findings, variant, reference), findings.rules.confidence
    found = [*parts(pair, findings.study.variants, confidence), at_equal_bytes(pair, verdict.comparison, confidence)]
    return [part.values for part in found if part]


def _compared(findings: Findings, variant: Variant, reference: Variant) -> Pair:
    """Return both sides with the runs that the verdict compares: in rounds those up to the variant's last look."""
    comparison, plan = findings.verdicts[variant.id].comparison, findings.study.plan
    if plan is None or not isinstance(comparison, SequentialComparison):
        return variant, reference
    seeds = plan.seeds[: comparison.look]
    one, other = (replace(v, rows=tuple(row for row in v.rows if row.seed in seeds)) for v in (variant, reference))
    return one, other


def explained(pair: Pair, among: Sequence[Variant], comparison: Comparison | None, confidence: float) -> str:
    """Return the sentence on what a variant's difference from its reference is made of; empty if no run tells it.

    Of the variants `among` which they are, those of other lengths help to tell what steps bring.
    """
    variant, reference = pair
    if not (found := parts(pair, among, confidence)):
        return ""
    share = math.expm1(_log_ratio(pair))
    steps = f"{abs(share):.1%} {'more' if share > 0 else 'fewer'} steps"
    words = [str(replace(part, part=f"by {steps}") if part.part == BY_STEPS else part) for part in found]
    beside = []
    if more := _more_bytes(pair):
        beside.append(f"{counted(abs(more), 'byte')} {'more' if more > 0 else 'less'}")
        if (equal := at_equal_bytes(pair, comparison, confidence)) and equal.interval_bpb:
            beside[-1] += f" ({signed(equal.difference_bpb)} {AT_EQUAL_BYTES}, {interval_text(equal.interval_bpb)})"
    if abs(share) > FEWER_STEPS and BY_STEPS not in (part.part for part in found):
        beside.append(f"{steps}, whose part these runs do not tell")
    whole = signed(_mean(_whole(variant), "val_bpb") - _mean(_whole(reference), "val_bpb"))
    made_of = " and ".join(", ".join(words).rsplit(", ", 1)) if len(words) > 1 else words[0]
    return f"the means' {whole} bpb are {made_of}{'; with ' * bool(beside)}{' and '.join(beside)}."


def parts(pair: Pair, among: Sequence[Variant], confidence: float) -> list[Part]:
    """Return the parts of the difference of means, which add up to it; a part without any effect is left out."""
    sides, found = [_whole(side) for side in pair], []
    before = {id(row): 0.0 for rows in sides for row in rows}
    # The same checkpoints differ in nothing before quantization, and after it their seeds are pairs.
    is_pair = are_pairs(*pair)
    for part, field in STAGES.items():
        samples = [{f"seed {row.seed}": getattr(row, field) - before[id(row)] for row in rows} for rows in sides]
        before = {id(row): getattr(row, field) for rows in sides for row in rows}
        values = [list(sample.values()) for sample in samples]
        if not all(values) or max(np.abs(np.concatenate(values))) <= ROUNDING:
            continue
        difference, comparison = float(np.mean(values[0]) - np.mean(values[1])), None
        if is_pair and abs(difference) <= ROUNDING:
            continue
        with contextlib.suppress(GolfError):
            comparison = paired(*samples) if is_pair else welch(*values)
        of_steps = _by_steps(pair, among, comparison) if field == STAGES["before quantization"] else []
        if of_steps:
            found += [_part(name, one, confidence) for name, one in of_steps]
        else:
            found.append(_part(part, comparison, confidence) if comparison else Part(part, difference))
    return found


def _part(name: str, comparison: Comparison, confidence: float) -> Part:
    return Part(name, comparison.difference, comparison.interval(confidence))


def at_equal_bytes(pair: Pair, comparison: Comparison | None, confidence: float) -> Part | None:
    """Return the compared difference as it would be if other steps of the quantization gave both as many bytes.

    None if that is the same to the fourth decimal, the runs do not tell it, or it is too far away for the law.
    """
    rows, more = _whole(pair[0]), _more_bytes(pair)
    weights, gap = _mean(rows, "model_params"), _mean(rows, "post_quant_bpb") - _mean(rows, "pre_quant_bpb")
    if comparison is None or not weights > 0 or gap <= 0 or abs(bits := 8 * more / weights) > MOST_BITS:
        return None
    cost = gap * (GAP_PER_BIT**bits - 1)
    error = math.hypot(comparison.standard_error, GAP_ERROR * cost)
    moved = replace(comparison, difference=comparison.difference + cost, standard_error=error)
    return _part(AT_EQUAL_BYTES, moved, confidence) if abs(cost) >= 5e-5 else None


def _by_steps(pair: Pair, among: Sequence[Variant], whole: Comparison | None) -> list[tuple[str, Comparison]]:
    """Return the two parts of the difference before quantization, the `whole`: at equal steps, and by other steps.

    None where steps are equal, or neither these runs nor public ones tell what a step is worth.
    """
    log_ratio = _log_ratio(pair)
    if abs(log_ratio) <= FEWER_STEPS:
        return []
    if own := _by_own_slope(pair, among, log_ratio):
        return own
    rows = [row for side in pair for row in _whole(side)]
    is_public = all(row.data in PUBLIC_TEXTS and PUBLIC_STEPS[0] <= (row.steps or 0) <= PUBLIC_STEPS[1] for row in rows)
    if whole is None or not is_public:
        return []
    steps = Comparison(PUBLIC_SLOPE * log_ratio, PUBLIC_SLOPE_SD * abs(log_ratio), math.inf, KNOWN_SIGMA)
    error = math.hypot(whole.standard_error, steps.standard_error)
    rest = replace(whole, difference=whole.difference - steps.difference, standard_error=error)
    return [(AT_EQUAL_STEPS, rest), (BY_STEPS, steps)]


def _by_own_slope(pair: Pair, among: Sequence[Variant], log_ratio: float) -> list[tuple[str, Comparison]]:
    """Return what the runs of both models tell, over other lengths, too: score = model + slope · log steps + noise.

    None if they show no slope (least squares, p of a slope below zero).
    """
    variants, models = {v.id: v for v in (*pair, *among)}.values(), list(dict.fromkeys(map(_model, pair)))
    logs = [log for side in pair for _, log in _stepped(side)]
    near = min(logs) - math.log(MOST_RATIO), max(logs) + math.log(MOST_RATIO)
    rows = [(v, *one) for v in variants if _model(v) in models for one in _stepped(v) if near[0] <= one[1] <= near[1]]
    steps, scores = (np.array(values) for values in ([x for *_, x in rows], [r.pre_quant_bpb for _, r, _ in rows]))
    design = np.column_stack([*([float(_model(v) == model) for v, *_ in rows] for model in models), steps])
    inverse = np.linalg.pinv(design)
    residuals, df = scores - design @ (inverse @ scores), len(rows) - design.shape[1]
    noise = math.sqrt(float(residuals @ residuals) / max(df, 1))
    if df < 1 or noise <= ROUNDING or np.linalg.matrix_rank(design) < design.shape[1]:
        return []

    def told(weights: Floats) -> Comparison:
        return Comparison(float(weights @ scores), noise * float(np.linalg.norm(weights)), df, POOLED)

    slope = np.asarray(inverse[-1])
    if told(slope).p_below() > SLOPE_SHOWS:
        return []
    mine, theirs = (np.array([float(v.id == side.id) for v, *_ in rows]) for side in pair)
    means = mine / mine.sum() - theirs / theirs.sum()
    by_steps = [(BY_STEPS, told(log_ratio * slope))]
    # Two that differ in the length alone have no other part.
    return by_steps if len(models) == 1 else [(AT_EQUAL_STEPS, told(means - log_ratio * slope)), *by_steps]


def _model(variant: Variant) -> str:
    """Return the settings but for those of the length; the id where none are known."""
    rest = {key: value for key, value in variant.settings.items() if key not in LENGTH}
    return json.dumps(rest, sort_keys=True) if rest else variant.id


def _whole(variant: Variant) -> list[RunRow]:
    """Return the runs that count and have the score of every stage."""
    return [row for row in variant.counted if all(is_score(getattr(row, field)) for field in STAGES.values())]


def _stepped(variant: Variant) -> list[tuple[RunRow, float]]:
    """Return the runs that have taken a number of steps, and its logarithm. A damaged file may hold any number."""
    return [(row, math.log(row.steps)) for row in _whole(variant) if row.steps and 0 < row.steps < MOST_STEPS]


def _log_ratio(pair: Pair) -> float:
    """Return how many more steps the variant has than its reference, as the difference of mean logarithms."""
    logs = [[log for _, log in _stepped(side)] for side in pair]
    return float(np.mean(logs[0]) - np.mean(logs[1])) if all(logs) else 0.0


def _more_bytes(pair: Pair) -> int:
    """Return how many bytes the variant has more than its reference; 0 if that is not known."""
    sizes = [_mean(_whole(side), "total_bytes") for side in pair]
    return round(sizes[0] - sizes[1]) if all(sizes) and all(map(math.isfinite, sizes)) else 0


def _mean(rows: Sequence[RunRow], field: str) -> float:
    """Return the mean of a field; 0 without a run that has it."""
    values = [value for row in rows if (value := getattr(row, field)) is not None]
    return float(np.mean(values)) if values else 0.0
