"""Split a difference into training, quantization and evaluation, and say how steps and bytes differ beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import numpy as np

from golf.errors import GolfError
from golf.lab.report.findings import Findings, variant_name
from golf.lab.report.rows import RunRow, is_score
from golf.lab.report.statistics import ROUNDING, welch
from golf.lab.report.variants import Variant
from golf.lab.report.verdicts import BETTER
from golf.words import counted, interval_text, signed

MOST_EXPLAINED = 3  # variants, the best first
# Scores of a run in the order in which they are taken; each but the first adds a part to the one before.
STAGES = {"before quantization": "pre_quant_bpb", "by quantization": "post_quant_bpb", "by evaluation": "val_bpb"}
FEWER_STEPS = 0.005  # a smaller share of the steps says nothing


def about_origins(findings: Findings) -> Iterator[str]:
    """Yield a sentence for each of the best variants that are better, on what their difference is made of."""
    reference = findings.reference
    if not isinstance(reference, Variant) or findings.score != "final":
        return
    better = [v for v in findings.variants if v.id in findings.verdicts and findings.verdicts[v.id].kind == BETTER]
    for variant in better[:MOST_EXPLAINED]:
        if parts := list(_parts(variant, reference, findings.rules.confidence)):
            whole = signed(_mean(_whole(variant), "val_bpb") - _mean(_whole(reference), "val_bpb"))
            made_of = " and ".join(", ".join(parts).rsplit(", ", 1)) if len(parts) > 1 else parts[0]
            name, beside = variant_name(findings, variant), _beside(variant, reference)
            yield f"{name}: the means' {whole} bpb are {made_of}{beside}."


def _whole(variant: Variant) -> list[RunRow]:
    """Return the runs that count and have the score of every stage."""
    return [row for row in variant.counted if all(is_score(getattr(row, field)) for field in STAGES.values())]


def _parts(variant: Variant, reference: Variant, confidence: float) -> Iterator[str]:
    """Yield each part of the difference with its interval; a part without any effect is left out."""
    before = {id(row): 0.0 for side in (variant, reference) for row in _whole(side)}
    for part, field in STAGES.items():
        samples = [[getattr(row, field) - before[id(row)] for row in _whole(side)] for side in (variant, reference)]
        before = {id(row): getattr(row, field) for side in (variant, reference) for row in _whole(side)}
        if not all(samples) or max(np.abs(np.concatenate(samples))) <= ROUNDING:
            continue
        shown = f"{signed(float(np.mean(samples[0]) - np.mean(samples[1])))} {part}"
        with contextlib.suppress(GolfError):
            shown += f" ({interval_text(welch(*samples).interval(confidence))})"
        yield shown


def _beside(variant: Variant, reference: Variant) -> str:
    """Return how steps and bytes differ, in words: a better score may be bought with either."""
    told = []
    steps = [_mean(_whole(v), "steps") for v in (variant, reference)]
    if all(steps) and abs(share := steps[0] / steps[1] - 1) > FEWER_STEPS:
        told.append(f"with {abs(share):.1%} {'more' if share > 0 else 'fewer'} steps")
    sizes = [_mean(_whole(v), "total_bytes") for v in (variant, reference)]
    if all(sizes) and (more := round(sizes[0] - sizes[1])):
        told.append(f"in {counted(abs(more), 'byte')} {'more' if more > 0 else 'less'}")
    return f"; {' and '.join(told)}" if told else ""


def _mean(rows: Iterable[RunRow], field: str) -> float:
    """Return the mean of a field; 0 without a run that has it."""
    values = [value for row in rows if (value := getattr(row, field)) is not None]
    return float(np.mean(values)) if values else 0.0
