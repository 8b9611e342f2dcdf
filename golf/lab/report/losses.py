"""Losses: runs that fail are no random sample, so that a finding has to hold with the lost ones as the worst."""

from __future__ import annotations

import math

from golf.lab.report.statistics import PAIRED, Comparison, rank_sum_p, signed_rank_p
from golf.lab.report.variants import Variant

MOST_LOST = 1 / 3  # share of lost runs above which the rest is a selection that shows no improvement


def p_better(
    comparison: Comparison, variant: Variant, reference: Variant | float, score: str, margin: float = 0.0
) -> float:
    """Return the p of an improvement by more than `margin`, in bits per byte, with the variant's lost runs.

    Where there are some it is the larger of the comparison's and that of ranks, in which all lost runs are the worst.
    """
    p = comparison.p_below(-margin)
    if not counts_losses(comparison, variant) or is_selection(variant, reference):
        return p
    mine = [bpb + margin for bpb in _with_lost(variant, score)]
    if isinstance(reference, Variant):
        return max(p, rank_sum_p(mine, _with_lost(reference, score)))
    return max(p, signed_rank_p([bpb - reference for bpb in mine]))


def p_worse(comparison: Comparison, variant: Variant, reference: Variant | float, score: str) -> float:
    """Return the p of a deterioration, as `p_better` of an improvement, with the lost runs of the reference."""
    p = comparison.p_above(0.0)
    if not isinstance(reference, Variant) or is_selection(reference, variant):
        return p
    if counts_losses(comparison, reference):
        return max(p, rank_sum_p(_with_lost(reference, score), _with_lost(variant, score)))
    return p


def counts_losses(comparison: Comparison, variant: Variant) -> bool:
    """Tell whether lost runs of the variant enter its p. Two formats of one checkpoint lose it together."""
    return bool(variant.lost) and comparison.test != PAIRED


def is_selection(variant: Variant, other: Variant | float) -> bool:
    """Tell whether the variant lost so many runs, and more than the other, that the rest shows no gain."""
    return variant.lost_share > max(MOST_LOST, other.lost_share if isinstance(other, Variant) else 0.0)


def _with_lost(variant: Variant, score: str) -> list[float]:
    return [*variant.scores(score), *(math.inf for _ in variant.lost)]
