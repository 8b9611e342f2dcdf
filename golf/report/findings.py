"""A judged study: verdicts, the best variant, its ties, and remarks on how far they can be trusted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from golf.bits import nats_per_token
from golf.errors import GolfError
from golf.report.statistics import KNOWN_SIGMA, ONE_SEED, pooled_sd, smallest_difference
from golf.report.study import Study
from golf.report.variants import SCORES, Variant
from golf.report.verdicts import NOT_COMPARABLE, Verdict, judge, tied_with_best
from golf.settings.config import RulesConfig

SCORE_TITLES = {
    "final": "final bpb",
    "pre_quant": "pre-quant bpb",
    "post_quant": "post-quant bpb",
    "sliding": "sliding bpb",
    "ttt": "TTT bpb",
}
MOST_NAMES = 4  # machines that a remark names


@dataclass(frozen=True)
class Findings:
    """Verdicts on a study under a rule. Scores are in bits per byte."""

    study: Study
    rules: RulesConfig
    score: str  # key of SCORES
    reference: Variant | float | None  # a float is a published score
    verdicts: dict[str, Verdict]  # by variant id; the reference has none
    best: Variant | None
    tied: set[str]  # ids of variants that are not shown to be worse than the best
    sigma: float | None  # standard deviation over seeds that the user gave, bits per byte
    remarks: tuple[str, ...]  # sentences below the table

    @property
    def variants(self) -> list[Variant]:
        """Return the variants, best first; those without a score come last, in the order they were asked for."""
        means = {v.id: v.mean(self.score) for v in self.study.variants}
        return sorted(self.study.variants, key=lambda v: (means[v.id] is None, means[v.id] or 0.0))


def judged(
    study: Study,
    rules: RulesConfig,
    *,
    score: str | None = None,
    sigma: float | None = None,
    against: float | None = None,
    test: str = "auto",
) -> Findings:
    """Judge every variant against the study's reference, or `against` a published score in bits per byte.

    Without `score` the final score is compared. If the runs took their final scores in different ways, the standard
    score after quantization is compared instead, because all runs have it. Raises `GolfError` for an unknown `score`.
    """
    ways = {row.how for v in study.variants for row in v.counted} - {None}
    chosen = score or ("final" if len(ways) < 2 else "post_quant")
    if chosen not in SCORES:
        raise GolfError(f"There is no score {chosen}: choose one of {', '.join(SCORES)}.")
    reference = against if against is not None else study.reference
    verdicts = {}
    if reference is not None:
        verdicts = judge(study.variants, reference, rules, score=chosen, sigma=sigma, test=test)
    # A score on another text or taken in another way must not become the best one.
    alike = [v for v in study.variants if v.id not in verdicts or not verdicts[v.id].reason.startswith(NOT_COMPARABLE)]
    best, tied = tied_with_best(alike, rules, score=chosen, sigma=sigma)
    findings = Findings(study, rules, chosen, reference, verdicts, best, tied, sigma, ())
    # The remarks read the findings, so they are written last.
    remarks = [*_about_score(findings, ways, score), *_about_rule(findings), *_about_noise(findings)]
    remarks += [*_about_runs(study), *study.notes]
    return Findings(study, rules, chosen, reference, verdicts, best, tied, sigma, tuple(remarks))


def score_title(findings: Findings) -> str:
    """Return the name of the compared score; final scores that are all standard ones are called post-quant bpb."""
    ways = {row.how for v in findings.study.variants for row in v.counted} - {None}
    if findings.score == "final" and ways == {"standard"}:
        return SCORE_TITLES["post_quant"]
    return SCORE_TITLES[findings.score]


def reference_name(findings: Findings) -> str:
    """Return the reference's label, or `the published 1.2244` for a number."""
    reference = findings.reference
    return reference.label if isinstance(reference, Variant) else f"the published {reference:g}"


def variant_name(findings: Findings, variant: Variant) -> str:
    """Return the swept values alone if the variant has them all, else its label. A title names the swept keys."""
    values = [variant.values.get(key) for key in findings.study.swept]
    return " ".join(map(str, values)) if values and None not in values else variant.label


def _about_score(findings: Findings, ways: set[str | None], asked: str | None) -> Iterable[str]:
    if findings.score == "final" and len(ways) == 1 and ways != {"standard"}:
        yield f"Scores are the artifact's by {ways.pop()}."
    if len(ways) > 1 and not asked:
        yield f"The runs' own scores were taken in {len(ways)} ways: compared is the standard one after quantization."


def _about_rule(findings: Findings) -> Iterable[str]:
    rules, verdicts = findings.rules, findings.verdicts.values()
    if not verdicts:
        return
    tests = sorted({v.comparison.test for v in verdicts if v.comparison})
    by = f" by more than {rules.margin_nats:g} nats per token" if rules.margin_nats else ""
    count = sum(v.comparison is not None for v in verdicts)
    over = f", Holm-corrected over {count} comparisons" if count > 1 else ""
    how = f" ({', '.join(tests)} test{over})" if tests else ""
    yield (
        f"Verdicts by rules={rules.name} against {reference_name(findings)}: better{by} or worse "
        f"at one-sided p < {rules.alpha:g}{how}."
    )


def _about_noise(findings: Findings) -> Iterable[str]:
    verdicts, rules = findings.verdicts.values(), findings.rules
    if findings.sigma and any(v.comparison and v.comparison.test == KNOWN_SIGMA for v in verdicts):
        yield f"Where seeds are too few, the standard deviation is the given {findings.sigma:g} bpb."
    if any(v.comparison is None and v.reason == ONE_SEED for v in verdicts):
        yield "One seed has no standard deviation: run more (seed=1,2,3), or borrow one with --sigma."
    pooled = pooled_sd([v.scores(findings.score) for v in findings.study.variants])
    seeds = [len(v.scores(findings.score)) for v in findings.study.variants if v.counted]
    if pooled is None or pooled[0] == 0 or min(seeds) < 2 or not verdicts:
        return
    sigma, df = pooled
    family = max(1, sum(v.comparison is not None for v in verdicts))
    published = not isinstance(findings.reference, Variant)
    # Holm's first and strictest step tests at alpha / family.
    found = smallest_difference(sigma, min(seeds), alpha=rules.alpha / family, power=rules.power, published=published)
    per_token = next((v.bytes_per_token for v in findings.study.variants if v.bytes_per_token), None)
    nats = f" ({nats_per_token(found, per_token):.4f} nats per token)" if per_token else ""
    yield (
        f"Seeds scatter by {sigma:.5f} bpb ({df} degrees of freedom): at {min(seeds)} seeds each, an improvement of "
        f"{found:.4f} bpb{nats} is found {rules.power:.0%} of the time, a smaller one less often."
    )


def _about_runs(study: Study) -> Iterable[str]:
    rows = [row for v in study.variants for row in v.rows]
    machines = sorted({row.machine for row in rows if row.counts and row.machine})
    if len(machines) > 1:
        yield (
            f"The runs are from {len(machines)} kinds of machine ({'; '.join(machines[:MOST_NAMES])}): "
            "under a clock, a difference may be the machine's."
        )
    waiting = sum(v.is_open for v in study.variants)
    if waiting:
        count = sum(row.is_open for row in rows)
        yield f"{count} of {len(rows)} runs are not finished: verdicts may change."
    for row in rows:
        for fault in row.faults:
            yield f"{row.name}{'' if row.seed is None else f', seed {row.seed}'}: {fault}"
