"""Verdicts: each variant of a study against a reference, under a rule.

Only `ok` runs enter means. All differences are computed in bits per byte; a difference in nats per token is the same
number times ln 2 times the bytes per token of the runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from golf.bits import bits_per_byte, nats_per_token
from golf.errors import GolfError
from golf.report.statistics import Comparison, holm, known_sigma, one_sample, paired, welch
from golf.report.variants import SCORES, Variant
from golf.run.result import DIVERGED
from golf.settings.config import RulesConfig

BETTER, WORSE, NO_DIFFERENCE, NO_VERDICT = "better", "worse", "not distinguishable", "no verdict"
MARGIN_NOT_SHOWN = "margin not shown"  # better, but not shown to be better by the rule's margin
NOT_COMPARABLE = "not comparable"
TESTS = ("auto", "welch", "paired")
SAME_TOKENIZER = 1e-4  # relative difference of bytes per token that rounding in logs explains
# Same-seed scores of two trainings correlate at r = -0.03 (20 pairs of public stacks), so a seed does not make a pair.
NO_PAIR = "two trainings are no pair even with the same seed: use Welch's test"


@dataclass(frozen=True)
class Verdict:
    """The verdict on one variant against the reference."""

    kind: str  # BETTER, WORSE, NO_DIFFERENCE, MARGIN_NOT_SHOWN or NO_VERDICT
    reason: str = ""
    difference_bpb: float | None = None
    difference_nats: float | None = None  # nats per token
    comparison: Comparison | None = None
    p: float | None = None  # one-sided in the direction found, Holm-corrected


def judge(
    variants: Sequence[Variant],
    reference: Variant | float,
    rules: RulesConfig,
    *,
    score: str = "final",
    sigma: float | None = None,
    test: str = "auto",
) -> dict[str, Verdict]:
    """Return a verdict by id for each variant but the reference, a variant or a published score in bits per byte.

    A variant is better if its Holm-corrected p is below `rules.alpha` for an improvement by more than
    `rules.margin_nats`. It is worse if the same holds for any deterioration. `sigma`, in bits per byte, is used for
    variants with too few seeds for Welch's test.
    """
    verdicts: dict[str, Verdict] = {}
    tested: list[tuple[Variant, Verdict, Comparison, float]] = []
    others = [v for v in variants if v is not reference]
    for variant in others:
        verdicts[variant.id] = verdict = Verdict(NO_VERDICT)
        try:
            check_comparable(variant, reference, score)
            verdicts[variant.id] = verdict = _measured(variant, reference, score)
            margin = _margin_bpb(variant, reference, rules)
            comparison = compare(variant, reference, score=score, sigma=sigma, test=test)
            tested.append((variant, replace(verdict, comparison=comparison), comparison, margin))
        except GolfError as error:
            verdicts[variant.id] = replace(verdict, reason=str(error))
    done = {variant.id for variant, *_ in tested}
    # Unfinished variants count as comparisons already, so that a verdict does not get easier halfway through a sweep.
    family = len(tested) + sum(v.is_open for v in others if v.id not in done)
    # One family for each hypothesis: better by the margin, better at all, worse.
    better = holm([c.p_below(-margin) for _, _, c, margin in tested], family)
    any_better = holm([c.p_below(0.0) for _, _, c, _ in tested], family)
    worse = holm([c.p_above(0.0) for _, _, c, _ in tested], family)
    for (variant, verdict, _, _), *p_values in zip(tested, better, any_better, worse, strict=True):
        verdicts[variant.id] = _decided(verdict, variant, rules, *p_values)
    return verdicts


def compare(
    variant: Variant,
    reference: Variant | float,
    *,
    score: str = "final",
    sigma: float | None = None,
    test: str = "auto",
) -> Comparison:
    """Compare by the test that fits: paired for shared checkpoints, one-sample for a published score, else Welch's.

    Raises `GolfError` with the reason if no test fits.
    """
    scores = _scores(variant, score)
    if not isinstance(reference, Variant):
        return _with_few_seeds(scores, reference, sigma) or one_sample(scores, reference)
    of_reference = _scores(reference, score)
    check_comparable(variant, reference, score)
    no_pair = why_no_pairs(variant, reference)
    if test == "paired" and no_pair:
        raise GolfError(no_pair)
    if test == "paired" or (test == "auto" and not no_pair):
        both = [{f"seed {r.seed}": getattr(r, SCORES[score]) for r in v.scored(score)} for v in (variant, reference)]
        return paired(*both)
    return _with_few_seeds(scores, of_reference, sigma) or welch(scores, of_reference)


def why_no_pairs(variant: Variant, reference: Variant) -> str:
    """Return why the runs are not the same checkpoints scored or quantized in two ways; empty if they are.

    The score before quantization identifies a checkpoint: it is the same to the last digit only for the same weights.
    """
    before = [{row.seed: row.pre_quant_bpb for row in v.counted} for v in (variant, reference)]
    if set(before[0]) != set(before[1]):
        return f"they have different seeds; {NO_PAIR}"
    for seed, bpb in before[0].items():
        other = before[1][seed]
        if bpb is None or other is None:
            return f"seed {seed} has no score before quantization to tell its checkpoint by; {NO_PAIR}"
        if bpb != other:
            return f"seed {seed} scored {bpb:.6f} and {other:.6f} before quantization; {NO_PAIR}"
    return ""


def tied_with_best(
    variants: Sequence[Variant], rules: RulesConfig, *, score: str = "final", sigma: float | None = None
) -> tuple[Variant | None, set[str]]:
    """Return the variant with the lowest mean and the ids of those that were tested and not shown to be worse."""
    scored = [v for v in variants if v.mean(score) is not None]
    if not scored:
        return None, set()
    best = min(scored, key=lambda v: v.mean(score) or math.inf)
    tested: list[tuple[str, Comparison]] = []
    for variant in scored:
        try:
            if variant is not best:
                tested.append((variant.id, compare(variant, best, score=score, sigma=sigma)))
        except GolfError:
            continue
    p_values = holm([comparison.p_above(0.0) for _, comparison in tested])
    return best, {id for (id, _), p in zip(tested, p_values, strict=True) if p >= rules.alpha}


def _scores(variant: Variant, score: str) -> list[float]:
    scores = variant.scores(score)
    if not scores:
        raise GolfError(f"no {score} score" if variant.counted else "no run that counts")
    return scores


def _with_few_seeds(scores: list[float], reference: list[float] | float, sigma: float | None) -> Comparison | None:
    """Compare by the given `sigma`; None without one or if the samples have a standard deviation of their own."""
    samples = [scores] if isinstance(reference, float) else [scores, reference]
    # Scores that are all equal have a standard deviation of zero, which is no estimate of the noise.
    has_own = all(len(x) > 1 for x in samples) and any(min(x) != max(x) for x in samples)
    return None if sigma is None or has_own else known_sigma(scores, reference, sigma)


def check_comparable(variant: Variant, reference: Variant | float, score: str) -> None:
    """Raise `GolfError` if the scores belong to different texts or were taken in different ways."""
    if not isinstance(reference, Variant):
        return
    if _differ(variant, reference, "data"):
        raise GolfError(f"{NOT_COMPARABLE}: another text than the reference's")
    if score == "final" and _differ(variant, reference, "how"):
        raise GolfError(f"{NOT_COMPARABLE}: scored by {variant.counted[0].how}, not {reference.counted[0].how}")


def _differ(variant: Variant, reference: Variant, attribute: str) -> bool:
    """Tell whether the runs disagree in `attribute`; unknown values agree with everything."""
    found = [{getattr(row, attribute) for row in v.counted} - {None} for v in (variant, reference)]
    return bool(found[0] and found[1]) and len(found[0] | found[1]) > 1


def _measured(variant: Variant, reference: Variant | float, score: str) -> Verdict:
    """Return the difference of means without a verdict."""
    mine = variant.mean(score)
    other = reference.mean(score) if isinstance(reference, Variant) else reference
    if mine is None or other is None:
        return Verdict(NO_VERDICT)
    per_token = _shared_bytes_per_token(variant, reference)
    nats = nats_per_token(mine - other, per_token) if per_token else None
    return Verdict(NO_VERDICT, difference_bpb=mine - other, difference_nats=nats)


def _shared_bytes_per_token(variant: Variant, reference: Variant | float) -> float | None:
    """Return the bytes per token of both; None if unknown or if two tokenizers make nats per token different units."""
    mine = variant.bytes_per_token
    other = reference.bytes_per_token if isinstance(reference, Variant) else mine
    if mine is None or other is None or abs(mine / other - 1) > SAME_TOKENIZER:
        return None
    return mine


def _margin_bpb(variant: Variant, reference: Variant | float, rules: RulesConfig) -> float:
    """Return the rule's margin in bits per byte, at the variant's own bytes per token."""
    if rules.margin_nats == 0:
        return 0.0
    per_token = variant.bytes_per_token or (reference.bytes_per_token if isinstance(reference, Variant) else None)
    if per_token is None:
        raise GolfError(
            f"{rules.margin_nats:g} nats per token are unknown in bpb: the runs do not tell bytes per token"
        )
    return bits_per_byte(rules.margin_nats, 1, per_token)


def _decided(
    verdict: Verdict, variant: Variant, rules: RulesConfig, p_better: float, p_any_better: float, p_worse: float
) -> Verdict:
    if p_better < rules.alpha:
        kind, p = BETTER, p_better
    elif p_worse < rules.alpha:
        kind, p = WORSE, p_worse
    else:
        kind = MARGIN_NOT_SHOWN if p_any_better < rules.alpha else NO_DIFFERENCE
        # Without a finding, p is that of the direction in which the difference lies.
        p = p_better if (verdict.difference_bpb or 0.0) < 0 else p_worse
    diverged = sum(row.state == DIVERGED for row in variant.rows)
    reason = f"{diverged} of {len(variant.rows)} runs diverged" if diverged else ""
    return replace(verdict, kind=kind, p=p, reason=reason)
