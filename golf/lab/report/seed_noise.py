"""Tests by the standard deviation between seeds of a whole sweep, which few seeds of two variants tell badly."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import fdtrc

from golf.lab.report.statistics import ROUNDING, Comparison, Samples, pooled_sd, welch

POOLED = "pooled"
GUARD = 0.05  # p of the F test below which the sweep's spread does not fit and Welch's test is used


def pooled_unless_wider(variant: Sequence[float], reference: Sequence[float], sweep: Samples) -> Comparison:
    """Compare two variants by the standard deviation within the variants of the `sweep` that do not stand out by it.

    If the two scatter more than that allows (F test), Welch's test is used instead. Raises `GolfError` as `welch`.
    """
    own, whole = pooled_sd([variant, reference]), pooled_sd(without_wide(sweep))
    # Rounded scores may leave no spread at all.
    if whole is None or whole[0] <= ROUNDING or _is_too_wide(own, whole):
        return welch(variant, reference)
    error = whole[0] * math.sqrt(1 / len(variant) + 1 / len(reference))
    return Comparison(float(np.mean(variant)) - float(np.mean(reference)), error, whole[1], POOLED)


def without_wide(samples: Samples) -> list[Sequence[float]]:
    """Return the samples of two scores or more without those that scatter more than the rest (F test, Bonferroni).

    A learning rate that is far too high scatters ten times as much, and would hide what the others show.
    """
    kept = sorted((x for x in samples if len(x) > 1), key=lambda x: float(np.var(x, ddof=1)))
    while len(kept) > 2:
        rest, widest = pooled_sd(kept[:-1]), pooled_sd(kept[-1:])
        assert rest is not None and widest is not None
        if float(fdtrc(widest[1], rest[1], (widest[0] / max(rest[0], ROUNDING)) ** 2)) >= GUARD / len(kept):
            break
        kept.pop()
    return kept


def _is_too_wide(part: tuple[float, int] | None, whole: tuple[float, int]) -> bool:
    """Tell whether the F test refuses that `part` scatters as `whole`; each is a standard deviation and its df."""
    return part is not None and float(fdtrc(part[1], whole[1], (part[0] / whole[0]) ** 2)) < GUARD
