"""Power: by how much scores scatter, and which improvements a table would have found."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from golf.bits import nats_per_token
from golf.lab.report.comparison import are_pairs
from golf.lab.report.findings import Findings, variant_name
from golf.lab.report.machines import MACHINE, SEED, Fit
from golf.lab.report.statistics import (
    MOST_SD,
    ONE_SAMPLE,
    PAIRED,
    WELCH,
    Comparison,
    pooled_sd,
    smallest_difference,
)
from golf.lab.report.variants import Variant
from golf.lab.report.verdicts import SAME_TOKENIZER, margin_bpb
from golf.tables import grouped
from golf.words import listed, significant

Row = tuple[Variant, Comparison]
MUCH_WIDER = 1.5  # factor on what a table finds beyond which a row is named


def about_power(findings: Findings) -> Iterable[str]:
    """Say which improvements would have been found, for trainings, for fits of a whole sweep, and for pairs."""
    if findings.looks is not None:
        return  # the verdicts of a sequential sweep name what they exclude
    rows = [(v, c) for v in findings.study.variants if (c := comparison_of(findings, v))]
    if trained := [v for v, c in rows if c.test in (WELCH, ONE_SAMPLE)]:
        samples = [v.scores(findings.score) for v in trained]
        if isinstance(findings.reference, Variant):
            samples.append(findings.reference.scores(findings.score))
        sd, df = pooled_sd(samples) or (0.0, 0)
        count = min(map(len, samples))
        # A published mean of few runs adds its noise to that of the runs here.
        noise = findings.published.factor(sd, count) * sd if findings.published else sd
        smallest = _smallest(findings, noise, count, trained, one_sample=isinstance(findings.reference, float))
        # Beside rows that are judged by the noise of the whole sweep, these are judged by their own.
        whose = (
            f"Seeds of {listed([variant_name(findings, v) for v in trained])}" if len(trained) < len(rows) else "Seeds"
        )
        yield _sentence(f"{whose} scatter", sd, df, f"at {count} seeds each", smallest, findings)
    yield from _about_fits(findings, [(v, c) for v, c in rows if isinstance(c, Fit)])
    if pairs := [(v, c) for v, c in rows if c.test == PAIRED]:
        # The noise of a paired test is that of the differences, which lacks the noise between trainings.
        sd, df = _sd_of_pairs([c for _, c in pairs])
        count = round(min(c.df for _, c in pairs)) + 1
        smallest = _smallest(findings, sd, count, [v for v, _ in pairs], one_sample=True)
        yield _sentence("Differences within pairs scatter", sd, df, f"at {count} pairs", smallest, findings)


def _about_fits(findings: Findings, fits: Sequence[tuple[Variant, Fit]]) -> Iterator[str]:
    """Say what fits of a whole sweep would have found: the row in the middle, and those for which it takes more."""
    for test, alike in grouped((c.test, (v, c)) for v, c in fits).items():
        # A fit knows its standard error: the power is that of its t, whatever the seeds on each machine.
        found = sorted(((_of_fit(findings, v, c), c.sd, c.sd_df, variant_name(findings, v)) for v, c in alike))
        counts = [len(v.scores(findings.score)) for v, _ in alike]
        where = "as the runs lie on them" if MACHINE in test else f"at {min(counts)} seeds each"
        smallest, sd, df, _ = found[len(found) // 2]
        said = _sentence(_noise_of(test), sd, df, where, smallest, findings)
        if wider := [(least, name) for least, _, _, name in found if least > MUCH_WIDER * smallest]:
            takes = f"{significant(wider[-1][0])} bpb" if math.isfinite(wider[-1][0]) else "more seeds"
            said += f" For {listed([name for _, name in wider])} it takes {takes}: more scatter or fewer runs."
        yield said


def _noise_of(test: str) -> str:
    """Return the begin of the sentence on the scatter that a fit leaves."""
    besides = [said for term, said in ((MACHINE, "the machines"), (SEED, "what a seed's runs share")) if term in test]
    return f"Beside {' and '.join(besides)} seeds scatter" if besides else "Seeds scatter"


def comparison_of(findings: Findings, variant: Variant) -> Comparison | None:
    """Return the comparison of the variant with the reference; None if there was none."""
    verdict = findings.verdicts.get(variant.id)
    return verdict.comparison if verdict else None


def _of_fit(findings: Findings, variant: Variant, fit: Fit) -> float:
    """Return the smallest improvement that the fit finds: a one-sample test of as many seeds has the same t."""
    count = max(2, round(fit.df) + 1)
    return _smallest(findings, fit.standard_error * math.sqrt(count), count, [variant], one_sample=True)


def _sd_of_pairs(comparisons: Sequence[Comparison]) -> tuple[float, int]:
    """Return the pooled standard deviation of the differences of paired comparisons and its degrees of freedom."""
    df = sum(c.df for c in comparisons)
    # The squared standard error is the variance over the number of pairs, which is df + 1.
    return math.sqrt(sum(c.standard_error**2 * (c.df + 1) * c.df for c in comparisons) / df), round(df)


def _smallest(findings: Findings, sigma: float, seeds: int, variants: Sequence[Variant], *, one_sample: bool) -> float:
    """Return the smallest improvement in bits per byte that the rule finds, its margin included."""
    rules, reference = findings.rules, findings.reference
    assert reference is not None, "without a reference there are no verdicts"
    # Holm's first and strictest step tests at alpha / family.
    # Verdicts without a test have a family of zero.
    family = max(v.family for v in findings.verdicts.values())
    margin = max(margin_bpb(v, reference, rules) for v in variants)
    alpha, power = rules.alpha / family, rules.power
    return smallest_difference(sigma, seeds, alpha=alpha, power=power, margin=margin, published=one_sample)


def _sentence(noise: str, sd: float, df: int, where: str, smallest: float, findings: Findings) -> str:
    often = f"{findings.rules.power:.0%} of the time"
    start = f"{noise} by {significant(sd, 5)} bpb ({df} degrees of freedom): {where}, "
    if math.isinf(smallest):
        return f"{start}no improvement up to {MOST_SD:g} standard deviations is found {often}. More seeds are needed."
    sizes = [v.bytes_per_token for v in findings.study.variants if v.bytes_per_token]
    # Nats per token of two tokenizers are different units.
    is_shared = bool(sizes) and max(sizes) / min(sizes) - 1 <= SAME_TOKENIZER
    nats = f" ({significant(nats_per_token(smallest, sizes[0]))} nats per token)" if is_shared else ""
    return f"{start}an improvement of {significant(smallest)} bpb{nats} is found {often}, a smaller one less often."


def noise_among(findings: Findings, variants: Sequence[Variant]) -> float:
    """Return the standard deviation in bits per byte by which scores scatter within `variants`; 0 if none tells.

    Variants of the same checkpoints share the noise of training, which favours none of them and is left out. So is that
    of machines and seeds where they have terms.
    """
    score = findings.score
    samples: Any = [v.scores(score) for v in variants]
    common = set.intersection(*({row.seed for row in v.scored(score)} for v in variants))
    # In a sweep in rounds some variants have fewer seeds.
    shared = [replace(v, rows=tuple(row for row in v.rows if row.seed in common)) for v in variants]
    compared = [c for v in variants if isinstance(c := comparison_of(findings, v), Fit)]
    fits = [c for c in compared if MACHINE in c.test or SEED in c.test]
    if common and all(are_pairs(v, shared[0]) for v in shared):
        paired = [v.scores(score) for v in shared]
        samples = np.subtract(paired, np.mean(paired, 0)) * math.sqrt(len(variants) / (len(variants) - 1))
    elif fits:
        return math.sqrt(sum(c.sd**2 * c.sd_df for c in fits) / sum(c.sd_df for c in fits))
    return (pooled_sd(samples) or (0.0, 0))[0]
