"""Significance tests of two sets of scores, and the number of seeds that a difference needs.

Scores may be in any one unit; lower is better. A difference is the variant's mean minus the reference's. Functions
raise `GolfError` with the reason if the scores allow no test.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

# scipy.special and not scipy.stats, which takes three times as long to import.
from scipy.special import betaincinv, nctdtr, ndtr, ndtri, stdtr, stdtrit

from golf.errors import GolfError

WELCH, ONE_SAMPLE, PAIRED, KNOWN_SIGMA = "Welch", "one-sample", "paired", "given sd"
NO_SPREAD = "every seed scored the same: no spread to test against"
ONE_SEED = "one seed"  # reason for no test: one score has no standard deviation
MOST_SEEDS = 10_000
SHARES = 200  # points over which the power of Welch's test is averaged
PRECISION = 1e-4  # precision of a smallest difference, in standard deviations
MOST_SD = 50.0  # largest difference that is looked for, in standard deviations; the noncentral t is NaN far beyond it
Samples = Sequence[Sequence[float]]  # scores of several variants
ROUNDING = 1e-9  # bits per byte or nats per token; a spread below it comes from rounding


@dataclass(frozen=True)
class Comparison:
    """A measured difference of means and its uncertainty."""

    difference: float
    standard_error: float
    df: float  # degrees of freedom of Student's t; infinite for a given standard deviation
    test: str

    def p_below(self, value: float = 0.0) -> float:
        """Return the one-sided p of the hypothesis that the true difference is `value` or more."""
        return _cdf((self.difference - value) / self.standard_error, self.df)

    def p_above(self, value: float = 0.0) -> float:
        """Return the one-sided p of the hypothesis that the true difference is `value` or less."""
        return _cdf((value - self.difference) / self.standard_error, self.df)

    def interval(self, confidence: float) -> tuple[float, float]:
        """Return the two-sided confidence interval of the true difference."""
        # Half of what the confidence leaves out lies on either side.
        p = (1 + confidence) / 2
        half = float(ndtri(p) if math.isinf(self.df) else stdtrit(self.df, p)) * self.standard_error
        return self.difference - half, self.difference + half


def welch(variant: Sequence[float], reference: Sequence[float]) -> Comparison:
    """Compare two variants that were trained separately; their variances may differ (Welch 1947)."""
    if min(len(variant), len(reference)) < 2:
        raise GolfError(ONE_SEED)
    if is_constant(variant) and is_constant(reference):
        raise GolfError(NO_SPREAD)
    parts = [float(np.var(x, ddof=1)) / len(x) for x in (variant, reference)]
    df = sum(parts) ** 2 / sum(part**2 / (len(x) - 1) for part, x in zip(parts, (variant, reference), strict=True))
    return Comparison(_mean(variant) - _mean(reference), math.sqrt(sum(parts)), df, WELCH)


def one_sample(variant: Sequence[float], published: float) -> Comparison:
    """Compare a variant with a published score, whose own noise is unknown and taken as zero."""
    if len(variant) < 2:
        raise GolfError(ONE_SEED)
    if is_constant(variant):
        raise GolfError(NO_SPREAD)
    error = float(np.std(variant, ddof=1)) / math.sqrt(len(variant))
    return Comparison(_mean(variant) - published, error, len(variant) - 1, ONE_SAMPLE)


def paired(variant: Mapping[str, float], reference: Mapping[str, float]) -> Comparison:
    """Compare two ways of scoring or quantizing the same checkpoints; keys name the checkpoint of each score."""
    if only := sorted(set(variant) ^ set(reference)):
        raise GolfError(f"{', '.join(only)}: scored in one of the two ways only, so there is no pair")
    differences = [variant[key] - reference[key] for key in variant]
    if differences and all(abs(difference) <= ROUNDING for difference in differences):
        raise GolfError("the scores are the same to the last digit: the change has no effect on this score")
    # A paired test is a one-sample test of the differences.
    comparison = one_sample(differences, 0.0)
    return Comparison(comparison.difference, comparison.standard_error, comparison.df, PAIRED)


def known_sigma(variant: Sequence[float], reference: Sequence[float] | float, sigma: float) -> Comparison:
    """Compare by a standard deviation from elsewhere, for samples that are too small to have their own."""
    if not (math.isfinite(sigma) and sigma > 0):
        raise GolfError(f"a standard deviation of {sigma} cannot be: give one above 0.")
    error = sigma * math.sqrt(1 / len(variant) + (0.0 if isinstance(reference, float) else 1 / len(reference)))
    return Comparison(_mean(variant) - float(np.mean(reference)), error, math.inf, KNOWN_SIGMA)


def rank_sum_p(lower: Sequence[float], higher: Sequence[float]) -> float:
    """Return the one-sided p of Wilcoxon's exact rank-sum test that `lower` is lower; equal scores share their rank."""
    ranks = _doubled_ranks([*lower, *higher])
    # Number of ways to choose so many of the ranks with this sum.
    ways = np.zeros((len(lower) + 1, sum(ranks) + 1))
    ways[0, 0] = 1
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, :-rank]
    return float(ways[-1, : sum(ranks[: len(lower)]) + 1].sum() / ways[-1].sum())


def signed_rank_p(differences: Sequence[float]) -> float:
    """Return the one-sided p of Wilcoxon's exact signed-rank test that the differences lie below 0."""
    ranks = _doubled_ranks([abs(difference) for difference in differences])
    ways = np.zeros(sum(ranks) + 1)
    ways[0] = 1
    for rank in ranks:
        ways[rank:] += ways[:-rank]
    above = sum(rank for rank, difference in zip(ranks, differences, strict=True) if difference >= 0)
    return float(ways[: above + 1].sum() / ways.sum())


def _doubled_ranks(values: Sequence[float]) -> list[int]:
    """Return twice the rank of each value: the mean rank of equal ones, doubled, is a whole number."""
    return [2 * sum(y < x for y in values) + sum(y == x for y in values) + 1 for x in values]


def holm(p_values: Sequence[float], family: int | None = None) -> list[float]:
    """Return the p values corrected for multiple comparisons (Holm 1979), in the order given.

    `family` is the number of comparisons including those still to come; it counts as `len(p_values)` at least.
    """
    size = max(family or 0, len(p_values))
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        # Holm's procedure stops at the first p that fails, so no corrected p may be below that of a smaller one.
        largest = max(largest, min(1.0, (size - rank) * p_values[index]))
        corrected[index] = largest
    return corrected


def pooled_sd(samples: Samples) -> tuple[float, int] | None:
    """Return the standard deviation within the samples and its degrees of freedom; None if no sample has two scores."""
    if (df := sum(len(x) - 1 for x in samples if len(x) > 1)) == 0:
        return None
    return math.sqrt(sum(float(np.var(x, ddof=1)) * (len(x) - 1) for x in samples if len(x) > 1) / df), df


def luck_of_the_best(count: int, sd: float, seeds: int) -> float:
    """Return how far the lowest of `count` means lies below its true value on average, were all true values equal.

    `sd` is the standard deviation between seeds in bits per byte, as is the result. Whether the variants are equal is
    not known, and a correction by this amount is wrong where they are not: where one of five is better by two standard
    deviations, the mean as measured has the smaller error.
    """
    z = np.linspace(-9, 9, 3601)
    density = count * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * ndtr(-z) ** (count - 1)
    return float(-(z * density).sum() * (z[1] - z[0])) * sd / math.sqrt(seeds)


def is_constant(scores: Sequence[float]) -> bool:
    """Tell whether the scores are equal but for rounding."""
    return max(scores) - min(scores) <= ROUNDING


def detection_power(
    difference: float, sigma: float, seeds: int, *, alpha: float, margin: float = 0.0, published: bool = False
) -> float:
    """Return the probability that a true improvement by `difference` is shown to exceed `margin` at one-sided `alpha`.

    Both variants have `seeds` seeds and Welch's test compares them; a `published` reference is one number instead.
    """
    if seeds < 2:
        raise GolfError(f"{seeds} seed has no standard deviation of its own: take 2 or more.")
    df = seeds - 1
    if published:
        shift = (difference - margin) / (sigma * math.sqrt(1 / seeds))
        return float(1 - nctdtr(df, shift, stdtrit(df, 1 - alpha)))
    # For two samples of n scores each, t follows Student's distribution with 2n - 2 degrees of freedom. Welch's own
    # degrees of freedom depend only on the first sample's share of the variance, which follows a beta distribution.
    share = betaincinv(df / 2, df / 2, (np.arange(SHARES) + 0.5) / SHARES)
    welch_df = df / (share**2 + (1 - share) ** 2)
    shift = (difference - margin) / (sigma * math.sqrt(2 / seeds))
    return float(np.mean(1 - nctdtr(2 * df, shift, stdtrit(welch_df, 1 - alpha))))


def smallest_difference(
    sigma: float, seeds: int, *, alpha: float, power: float, margin: float = 0.0, published: bool = False
) -> float:
    """Return the true improvement that is found with probability `power`; smaller ones are missed more often.

    The result is infinite if `MOST_SD` standard deviations above the margin are not found: more seeds are needed.
    """

    def is_found(difference: float) -> bool:
        return detection_power(difference, sigma, seeds, alpha=alpha, margin=margin, published=published) >= power

    # Power grows with the difference, so doubling finds an upper end and bisection the value.
    low, high, highest = margin, margin + sigma, margin + MOST_SD * sigma
    while not is_found(high):
        if high >= highest:
            return math.inf
        low, high = high, min(margin + 2 * (high - margin), highest)
    while high - low > sigma * PRECISION:
        middle = (low + high) / 2
        low, high = (low, middle) if is_found(middle) else (middle, high)
    return high


def seeds_needed(
    difference: float, sigma: float, *, alpha: float, power: float, margin: float = 0.0, published: bool = False
) -> int:
    """Return the fewest seeds of each variant with which `difference` is found with probability `power`.

    `difference` and `sigma` are above 0. Raises `GolfError` if no number of seeds will do.
    """
    if difference <= margin:
        raise GolfError(
            f"No number of seeds shows {difference:g} to exceed the rule's margin of {margin:g}: "
            "hope for more, or take a rule without a margin."
        )

    def enough(n: int) -> bool:
        return detection_power(difference, sigma, n, alpha=alpha, margin=margin, published=published) >= power

    # One seed has no standard deviation. Power grows with the seeds, so doubling and bisection find the fewest.
    high = 2
    while not enough(high):
        if high > MOST_SEEDS:
            raise GolfError(f"More than {MOST_SEEDS:,} seeds are needed: the difference is too far below the noise.")
        high *= 2
    low = max(2, high // 2)
    return low + bisect.bisect_left(range(low, high), True, key=enough)


def _cdf(t: float, df: float) -> float:
    return float(ndtr(t) if math.isinf(df) else stdtr(df, t))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
