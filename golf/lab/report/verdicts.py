"""Verdicts: each variant of a study against a reference, under a rule.

Only `ok` runs enter means. All differences are computed in bits per byte; a difference in nats per token is the same
number times ln 2 times the bytes per token of the runs.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from golf.bits import bits_per_byte, nats_per_token
from golf.errors import GolfError
from golf.lab.report.comparison import PublishedNoise, blocks_of, check_comparable, compare, why_not_alike
from golf.lab.report.losses import MOST_LOST, is_selection, p_better, p_worse
from golf.lab.report.statistics import Comparison, holm
from golf.lab.report.variants import Variant, compared_before
from golf.settings.config import RulesConfig
from golf.words import counted

BETTER, WORSE, NO_DIFFERENCE, NO_VERDICT = "better", "worse", "not distinguishable", "no verdict"
MARGIN_NOT_SHOWN = "margin not shown"  # better, but not shown to be better by the rule's margin
NOT_SEPARABLE = "not separable"  # the variant changes several things at once
IMPROVED = (BETTER, MARGIN_NOT_SHOWN)
SAME_TOKENIZER = 1e-4  # relative difference of bytes per token that rounding in logs explains


@dataclass(frozen=True)
class Verdict:
    """The verdict on one variant against the reference."""

    kind: str  # BETTER, WORSE, NO_DIFFERENCE, MARGIN_NOT_SHOWN or NO_VERDICT
    reason: str = ""
    difference_bpb: float | None = None
    difference_nats: float | None = None  # nats per token
    comparison: Comparison | None = None
    p: float | None = None  # one-sided in the direction found, Holm-corrected
    family: int = 0  # comparisons that were counted, to come or of earlier sweeps, too; 0 without a comparison


@dataclass(frozen=True)
class Ranking:
    """The best variant and the comparisons of the others with it."""

    best: Variant | None
    tied: set[str]  # ids of variants that were tested and not shown to be worse than the best
    tested: set[str]  # ids of variants that were tested against the best
    unbeaten: set[str] = field(default_factory=set)  # ids of variants not shown to be worse, the best included


def judge(
    variants: Sequence[Variant],
    reference: Variant | float,
    rules: RulesConfig,
    *,
    score: str = "final",
    sigma: float | None = None,
    published: PublishedNoise | None = None,
) -> dict[str, Verdict]:
    """Return a verdict by id for each variant but the reference, a variant or a published score in bits per byte.

    A variant is better if its Holm-corrected p is below `rules.alpha` for an improvement by more than
    `rules.margin_nats`. It is worse if the same holds for any deterioration. `sigma`, in bits per byte, is used for
    variants with too few seeds for a test, and `published` is the noise of a published score.
    """
    verdicts: dict[str, Verdict] = {}
    tested: list[tuple[Variant, Verdict, Comparison, float]] = []
    others = [v for v in variants if v is not reference]
    not_alike = "" if isinstance(reference, Variant) else why_not_alike(others, score)
    before = compared_before(variants)
    among = blocks_of([*others, *before], reference, score)
    for variant in others:
        verdicts[variant.id] = verdict = Verdict(NO_VERDICT)
        try:
            if not_alike:
                raise GolfError(not_alike)
            check_comparable(variant, reference, score)
            verdicts[variant.id] = verdict = measured(variant, reference, score)
            margin = margin_bpb(variant, reference, rules)
            comparison = compare(variant, reference, score=score, sigma=sigma, published=published, among=among)
            # With a term for each machine the difference is the fit's, and that of the means contains the machines.
            verdict = measured(variant, reference, score, comparison.difference)
            tested.append((variant, verdict, comparison, margin))
        except GolfError as error:
            verdicts[variant.id] = replace(verdict, reason=str(error))
    done = {variant.id for variant, *_ in tested}
    # Unfinished variants count as comparisons already, so that a verdict does not get easier halfway through a sweep.
    # So do the variants of earlier sweeps that these were chosen from by the runs that count here again.
    family = len(tested) + sum(v.is_open for v in others if v.id not in done) + len(before)
    # One family for each hypothesis: better by the margin, better at all, worse.
    comparisons = [(v, c, margin) for v, _, c, margin in tested]
    for rival in before:
        # A rival without a p of its own counts as a comparison to come.
        with contextlib.suppress(GolfError):
            check_comparable(rival, reference, score)
            comparison = compare(rival, reference, score=score, sigma=sigma, published=published, among=among)
            comparisons.append((rival, comparison, margin_bpb(rival, reference, rules)))
    better = holm([p_better(c, v, reference, score, margin) for v, c, margin in comparisons], family)
    any_better = holm([p_better(c, v, reference, score) for v, c, _ in comparisons], family)
    worse = holm([p_worse(c, v, reference, score) for v, c, _ in comparisons], family)
    # Behind those of the variants stand those of the rivals, whose verdicts are in the earlier table.
    for (variant, verdict, comparison, _), *p_values in zip(tested, better, any_better, worse, strict=False):
        decided = replace(_decided(verdict, rules, *p_values), comparison=comparison, family=family)
        verdicts[variant.id] = with_losses(decided, variant, reference)
    return verdicts


def ranking(
    variants: Sequence[Variant],
    rules: RulesConfig,
    verdicts: Mapping[str, Verdict],
    reference: Variant | float | None,
    *,
    score: str = "final",
    sigma: float | None = None,
) -> Ranking:
    """Compare all variants with the best: the one with the lowest mean, or the lowest by its difference as fitted.

    A variant with one seed is the best only if no variant has two seeds or more. Ranks agree with the `verdicts`: what
    is worse than the `reference` is not the best, nor is a reference that something is better than. Where the lost runs
    make the rest a selection, a variant is not the best unless all are so, and ties with nothing.
    """
    means = fitted_means(variants, verdicts, reference, score)
    scored = [v for v in variants if v.id in means]
    selections = {v.id for v in scored if v.lost_share > MOST_LOST}
    beaten = {id for id, verdict in verdicts.items() if verdict.kind == WORSE}
    if isinstance(reference, Variant):
        beaten |= {reference.id} if any(v.kind in IMPROVED for v in verdicts.values()) else set()
    left = [v for v in scored if v.id not in beaten]
    candidates = [v for v in left if v.id not in selections] or left
    # One seed may be lucky, and nothing would tell.
    repeated = [v for v in candidates if len(v.scores(score)) > 1]
    if (best := min(repeated or candidates, key=lambda v: means[v.id], default=None)) is None:
        return Ranking(None, set(), set())
    tested: dict[str, float] = {}
    among = blocks_of(scored, best, score)
    for variant in scored:
        with contextlib.suppress(GolfError):
            if variant is not best:
                comparison = compare(variant, best, score=score, sigma=sigma, among=among)
                tested[variant.id] = p_worse(comparison, variant, best, score)
    p_values = holm([*tested.values()])
    tied = {id for id, p in zip(tested, p_values, strict=True) if p >= rules.alpha}
    # A pair with the reference has a verdict already, which may count more comparisons.
    pairs = verdicts if best is reference else {getattr(reference, "id", ""): verdicts.get(best.id)}
    decided = {id: v.kind in (*IMPROVED, WORSE) for id, v in pairs.items() if v and v.comparison and id in tested}
    tied = {id for id in tested if not decided.get(id, id not in tied)}
    unbeaten = {v.id for v in candidates} - (tested.keys() - tied)
    return Ranking(best, tied - selections, tested.keys() - (tied & selections), unbeaten)


def fitted_means(
    variants: Sequence[Variant], verdicts: Mapping[str, Verdict], reference: Variant | float | None, score: str
) -> dict[str, float]:
    """Return the mean of each variant with a score, by id: the reference's and the difference where one was tested.

    With a term for each machine the difference is the fit's, and the mean of the scores contains the machines.
    """
    means = {v.id: mean for v in variants if (mean := v.mean(score)) is not None}
    if isinstance(reference, Variant) and reference.id in means:
        fitted = {id: v.difference_bpb for id, v in verdicts.items() if v.comparison and v.difference_bpb is not None}
        means |= {id: means[reference.id] + difference for id, difference in fitted.items() if id in means}
    return means


def measured(variant: Variant, reference: Variant | float, score: str, fitted: float | None = None) -> Verdict:
    """Return the difference of means, or the `fitted` one in bits per byte, without a verdict."""
    mine = variant.mean(score)
    other = reference.mean(score) if isinstance(reference, Variant) else reference
    if mine is None or other is None:
        return Verdict(NO_VERDICT)
    per_token, of_reference = variant.bytes_per_token, variant.bytes_per_token
    if isinstance(reference, Variant):
        of_reference = reference.bytes_per_token
    # Nats per token of two tokenizers are different units, of which no difference can be taken.
    is_shared = per_token and of_reference and abs(per_token / of_reference - 1) <= SAME_TOKENIZER
    difference = mine - other if fitted is None else fitted
    nats = nats_per_token(difference, per_token) if per_token and is_shared else None
    return Verdict(NO_VERDICT, difference_bpb=difference, difference_nats=nats)


def margin_bpb(variant: Variant, reference: Variant | float, rules: RulesConfig) -> float:
    """Return the rule's margin in bits per byte, at the variant's own bytes per token."""
    if rules.margin_nats == 0:
        return 0.0
    per_token = variant.bytes_per_token or (reference.bytes_per_token if isinstance(reference, Variant) else None)
    if per_token is None:
        raise GolfError(f"{rules.margin_nats:g} nats per token are unknown in bpb: the runs tell no bytes per token")
    return bits_per_byte(rules.margin_nats, 1, per_token)


def _decided(verdict: Verdict, rules: RulesConfig, p_better: float, p_any_better: float, p_worse: float) -> Verdict:
    if p_better < rules.alpha:
        kind, p = BETTER, p_better
    elif p_worse < rules.alpha:
        kind, p = WORSE, p_worse
    else:
        kind = MARGIN_NOT_SHOWN if p_any_better < rules.alpha else NO_DIFFERENCE
        # Without a finding, p is that of the direction in which the difference lies.
        p = p_better if (verdict.difference_bpb or 0.0) < 0 else p_worse
    return replace(verdict, kind=kind, p=p)


def with_losses(verdict: Verdict, variant: Variant, reference: Variant | float) -> Verdict:
    """Return the verdict with the variant's lost runs as its reason.

    Many losses of the variant take an improvement back, and many of the reference a deterioration.
    """
    reasons, kind = [verdict.reason], verdict.kind
    lost = _about_lost(variant)
    # Runs that fail are no random sample: those that are left may be the lucky ones.
    if kind in IMPROVED and is_selection(variant, reference):
        kind, lost = NO_VERDICT, f"{lost}, and the rest is a selection"
    reasons.append(lost)
    if isinstance(reference, Variant) and kind == WORSE and is_selection(reference, variant):
        kind = NO_VERDICT
        reasons.append(f"of the reference {_about_lost(reference)}, and the rest is a selection")
    return replace(verdict, kind=kind, reason=", ".join(filter(None, reasons)))


def _about_lost(variant: Variant) -> str:
    """Return how many runs of the variant were lost, and how; empty without any."""
    counts = Counter(row.state.replace("_", " ") for row in variant.lost)
    share = f"{len(variant.lost)} of {counted(len(variant.rows), 'run')}"
    if len(counts) < 2:
        return f"{share} {next(iter(counts))}" if counts else ""
    return f"{share} lost ({', '.join(f'{number} {state}' for state, number in counts.items())})"
