"""Bound the optimum of one swept number by the values that are shown to be worse than the best one.

No curve is fitted: simulated scores over a learning rate, which rise faster on one side, had their optimum in the 90 %
interval of a parabola's in 0 to 92 of 100 sweeps.
"""

from __future__ import annotations

from collections.abc import Iterator

from golf.lab.report.comparison import blocks_of
from golf.lab.report.findings import Findings, swept_numbers
from golf.lab.report.variants import Variant


def about_optimum(findings: Findings) -> Iterator[str]:
    """Yield a sentence on the optimum of a number that was swept alone over three values or more.

    If the score has one minimum, it lies beyond any value that is worse than one further on. Sweeps in rounds have no
    such sentence: their values have runs until they are decided, by how they differ from the reference.
    """
    if not isinstance(findings.reference, Variant) or findings.looks is not None:
        return
    blocks = blocks_of(findings.variants, findings.reference, findings.score)
    numbers = swept_numbers(findings, [v for v in findings.variants if blocks and v.id in blocks.number and not v.lost])
    if blocks is None or len(set(numbers.values())) < max(3, len(numbers)):
        return
    values = {v.id: v.values[findings.study.swept[0]] for v in findings.variants if v.id in numbers}
    best = next(v.id for v in findings.variants if v.id in numbers)
    # The best one is chosen by its scores, and may be any.
    confidence = 1 - (1 - findings.rules.confidence) / (len(numbers) - 1)
    worse = []
    for id in numbers.keys() - {best}:
        contrast = blocks.contrast({id: 1.0, best: -1.0})
        if contrast and contrast.interval(confidence)[0] > 0:
            worse.append(id)
    below = max((id for id in worse if numbers[id] < numbers[best]), key=lambda id: numbers[id], default=None)
    above = min((id for id in worse if numbers[id] > numbers[best]), key=lambda id: numbers[id], default=None)
    if below and above:
        where = f"between {values[below]} and {values[above]}"
    elif below or above:
        side, other = ("above", "higher") if below else ("below", "lower")
        where = f"{side} {values[below or above or '']}; no {other} value is shown to be worse"
    else:
        return
    yield f"{findings.study.swept[0]}: if the score has one minimum, it lies {where}."
