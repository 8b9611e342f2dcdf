"""The standard deviation between seeds, moderated by what finished runs of the same kind have shown.

Three seeds say little about their own standard deviation. Many variants together say what is usual: their variances
are taken as draws of a scaled F distribution, whose scale and degrees of freedom become a prior (Smyth 2004, limma).
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import digamma, fdtrc, polygamma

from golf.errors import GolfError
from golf.report.rows import row_of
from golf.report.statistics import NO_SPREAD, ROUNDING, Comparison, is_constant, pooled_sd, welch
from golf.report.store import index_runs

MODERATED, POOLED = "moderated", "pooled"
FEWEST_GROUPS = 5  # variants with two seeds or more that make a prior
# Degrees of freedom of a prior at most. Finished groups look more alike than the next sweep will (docs/verdicts.md).
MOST_DF = 5.0
ALIKE_DF = 1e6  # degrees of freedom of variances that do not differ
GUARD = 0.05  # p of the F test below which the prior does not fit and Welch's test is used
NEWTON_STEPS = 30


@dataclass(frozen=True)
class SeedPrior:
    """Prior of the standard deviation between seeds, fixed before a sweep begins."""

    sd: float  # bits per byte
    df: float  # seeds' worth of degrees of freedom that it counts for
    groups: int  # variants that it comes from

    @staticmethod
    def of(values: Mapping[str, Any] | None) -> SeedPrior | None:
        """Return the prior from its plain values in a sweep's record; None for none."""
        return None if values is None else SeedPrior(**values)


def fit_prior(samples: Sequence[Sequence[float]]) -> SeedPrior | None:
    """Return the prior that the samples' variances suggest, by the moments of their logarithms (Smyth 2004, eq. 8-11).

    Each sample holds the scores of one variant's seeds in bits per byte. The result is None for fewer than
    `FEWEST_GROUPS` samples with a spread.
    """
    spread = [x for x in samples if len(x) > 1 and not is_constant(x)]
    if len(spread) < FEWEST_GROUPS:
        return None
    df = np.array([len(x) - 1 for x in spread], dtype=float)
    logs = np.log([float(np.var(x, ddof=1)) for x in spread]) - digamma(df / 2) + np.log(df / 2)
    excess = float(np.var(logs, ddof=1) - np.mean(polygamma(1, df / 2)))
    # Variances that differ no more than chance makes them have no finite degrees of freedom.
    found_df = ALIKE_DF if excess <= 0 else min(ALIKE_DF, 2 * _inverse_trigamma(excess))
    log_variance = float(np.mean(logs)) + float(digamma(found_df / 2)) - math.log(found_df / 2)
    return SeedPrior(math.exp(log_variance / 2), min(MOST_DF, found_df), len(spread))


def prior_of_finished_runs(
    like: Mapping[str, Any], machine: str, without: Collection[str], root: Path
) -> SeedPrior | None:
    """Return the prior that the finished runs under `root` suggest for runs like the configuration `like`.

    `like` is a configuration as plain values. Runs count that have the same data, scale and budget and ran on this kind
    of `machine`, except the variants `without`.
    """
    samples = []
    for variant, folders in index_runs(root).items():
        alike = [folder for folder in folders if variant not in without and _is_alike(folder, like)]
        scores = [row.val_bpb for row in map(row_of, alike) if row.counts and row.machine == machine]
        samples.append([score for score in scores if score is not None])
    return fit_prior(samples)


def _is_alike(folder: Path, like: Mapping[str, Any]) -> bool:
    try:
        values = json.loads((folder / "config.json").read_bytes())
        return all(values[group] == like[group] for group in ("data", "scale", "budget"))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def moderated(
    variant: Sequence[float], reference: Sequence[float], sweep: Sequence[Sequence[float]], prior: SeedPrior
) -> Comparison:
    """Compare two variants by one standard deviation: that of the whole `sweep` joined with the prior.

    If the sweep or one of the two scatters more than the prior allows (F test), Welch's test is used instead.
    Raises `GolfError` where that is needed and impossible.
    """
    pooled = pooled_sd(sweep)
    if any(_is_too_wide(found, prior) for found in (pooled, pooled_sd([variant]), pooled_sd([reference]))):
        return welch(variant, reference)
    # With one seed of each there is nothing to pool, and the prior alone counts.
    sd, df = pooled or (0.0, 0)
    variance = (prior.df * prior.sd**2 + df * sd**2) / (prior.df + df)
    # Others of the sweep may be quieter than these two; the wider of both is taken.
    if own := pooled_sd([variant, reference]):
        variance = max(variance, (prior.df * prior.sd**2 + own[1] * own[0] ** 2) / (prior.df + own[1]))
    error = math.sqrt(variance * (1 / len(variant) + 1 / len(reference)))
    if error <= ROUNDING:
        raise GolfError(NO_SPREAD)
    difference = float(np.mean(variant)) - float(np.mean(reference))
    return Comparison(difference, error, prior.df + df, MODERATED)


def pooled_unless_wider(
    variant: Sequence[float], reference: Sequence[float], sweep: Sequence[Sequence[float]]
) -> Comparison:
    """Compare two variants by the standard deviation within the variants of the `sweep` that do not stand out by it.

    If the two scatter more than that allows (F test), Welch's test is used instead. In a sweep of these two alone it is
    Welch's test with one degree of freedom less: at the small levels of repeated looks its own are too many where one
    of the two scatters more. Raises `GolfError` as `welch`.
    """
    if len(sweep) < 3:
        found = welch(variant, reference)
        return replace(found, df=max(min(len(variant), len(reference)) - 1, found.df - 1))
    own, whole = pooled_sd([variant, reference]), pooled_sd(without_wide(sweep))
    # Rounded scores may leave no spread at all.
    if whole is None or whole[0] <= ROUNDING or _is_too_wide(own, SeedPrior(*whole, len(sweep))):
        return welch(variant, reference)
    error = whole[0] * math.sqrt(1 / len(variant) + 1 / len(reference))
    return Comparison(float(np.mean(variant)) - float(np.mean(reference)), error, whole[1], POOLED)


def without_wide(samples: Sequence[Sequence[float]]) -> list[Sequence[float]]:
    """Return the samples of two scores or more without those that scatter more than the rest (F test, Bonferroni).

    A learning rate that is far too high scatters ten times as much, and would hide what the others show.
    """
    kept = sorted((x for x in samples if len(x) > 1), key=lambda x: float(np.var(x, ddof=1)))
    while len(kept) > 2:
        rest, widest = pooled_sd(kept[:-1]), pooled_sd(kept[-1:])
        assert rest is not None and widest is not None
        ratio = (widest[0] / max(rest[0], ROUNDING)) ** 2
        if float(fdtrc(widest[1], rest[1], ratio)) >= GUARD / len(kept):
            break
        kept.pop()
    return kept


def _is_too_wide(found: tuple[float, int] | None, prior: SeedPrior) -> bool:
    """Tell whether the F test refuses that `found`, a standard deviation and its df, fits the prior."""
    return found is not None and float(fdtrc(found[1], prior.df, (found[0] / prior.sd) ** 2)) < GUARD


def _inverse_trigamma(value: float) -> float:
    """Return x with trigamma(x) = `value`, by Newton's method on 1 / trigamma (Smyth 2004, appendix)."""
    # 1 / trigamma is convex and the start lies above the root, so that no step overshoots it.
    x = 0.5 + 1 / value
    for _ in range(NEWTON_STEPS):
        trigamma = float(polygamma(1, x))
        x += trigamma * (1 - trigamma / value) / float(polygamma(2, x))
    return x
