"""A judged study: verdicts, the best variant and its ties. `remarks` says how far they can be trusted."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from golf.errors import GolfError
from golf.lab.report.comparison import NOT_COMPARABLE, PublishedNoise
from golf.lab.report.sequential import judge_sequentially
from golf.lab.report.statistics import known_sigma, one_sample
from golf.lab.report.study import Study
from golf.lab.report.variants import SCORES, Variant
from golf.lab.report.verdicts import NOT_SEPARABLE, Ranking, Verdict, fitted_means, judge, ranking
from golf.settings.config import RulesConfig

SCORE_TITLES = {name: f"{name.replace('_', '-')} bpb" for name in SCORES} | {"ttt": "TTT bpb"}


@dataclass(frozen=True)
class Findings:
    """Verdicts on a study under a rule. Scores are in bits per byte."""

    study: Study
    rules: RulesConfig
    score: str  # key of SCORES
    reference: Variant | float | None  # a float is a published score
    verdicts: dict[str, Verdict]  # by variant id; the reference has none
    ranking: Ranking
    sigma: float | None  # standard deviation over seeds that the user gave, bits per byte
    published: PublishedNoise | None = None  # noise of a published reference; None takes it as exact
    looks: int | None = None  # looks of a sequential sweep so far; None if the verdicts are those of one look
    active: frozenset[str] = frozenset()  # ids of variants that a sequential sweep has not decided

    @property
    def best(self) -> Variant | None:
        """Return the variant with the best mean; None if no variant has a score that compares."""
        return self.ranking.best

    @property
    def reference_name(self) -> str:
        """Return the reference's label, or `the published 1.2244` for a number."""
        return self.reference.label if isinstance(self.reference, Variant) else f"the published {self.reference:g}"

    @property
    def variants(self) -> list[Variant]:
        """Return the variants, best first; those without a score come last, in the order they were asked for."""
        means = fitted_means(self.study.variants, self.verdicts, self.reference, self.score)
        return sorted(self.study.variants, key=lambda v: means.get(v.id, math.inf))


def judged(
    study: Study,
    rules: RulesConfig,
    *,
    score: str | None = None,
    sigma: float | None = None,
    against: float | None = None,
    published: PublishedNoise | None = None,
) -> Findings:
    """Judge every variant against the study's reference, or `against` a published score in bits per byte, whose noise
    is `published`.

    Without `score` the final score is compared. If the runs took their final scores in different ways, the standard
    score after quantization is compared instead, because all runs have it. Raises `GolfError` for an unknown `score`.
    """
    chosen = score or ("final" if len({way for v in study.variants for way in v.known("how")}) < 2 else "post_quant")
    if chosen not in SCORES:
        raise GolfError(f"There is no score {chosen}: choose one of {', '.join(SCORES)}.")
    reference = against if against is not None else study.reference
    verdicts, looks, active, plan = {}, None, frozenset[str](), study.plan
    # The verdicts of a study that was planned in looks against this reference count these.
    if plan and isinstance(reference, Variant) and reference.id == plan.reference and sigma is None:
        done = judge_sequentially(study.variants, reference, rules, plan, score=chosen)
        verdicts, looks, active = done.verdicts, done.looks, frozenset(done.active)
    elif reference is not None:
        verdicts = judge(study.variants, reference, rules, score=chosen, sigma=sigma, published=published)
    # A score on another text or taken in another way must not become the best one.
    alike = [v for v in study.variants if v.id not in verdicts or not verdicts[v.id].reason.startswith(NOT_COMPARABLE)]
    # Of scores that none other compares with, none is the best.
    alike = [] if alike == [reference] != list(study.variants) else alike
    ranked = ranking(alike, rules, verdicts, reference, score=chosen, sigma=sigma)
    if looks is not None:
        # Tests against the best after the fact do not count the looks.
        ranked = replace(ranked, tied=set(), tested=set())
    inseparable = {id: why for id, why in study.inseparable.items() if id in verdicts}
    verdicts |= {id: replace(verdicts[id], kind=NOT_SEPARABLE, reason=why) for id, why in inseparable.items()}
    return Findings(study, rules, chosen, reference, verdicts, ranked, sigma, published, looks, active)


def score_title(findings: Findings) -> str:
    """Return the name of the compared score; final scores that are all standard ones are called post-quant bpb."""
    if findings.score == "final" and {way for v in findings.study.variants for way in v.known("how")} == {"standard"}:
        return SCORE_TITLES["post_quant"]
    return SCORE_TITLES[findings.score]


def variant_name(findings: Findings, variant: Variant) -> str:
    """Return the swept values alone if the variant has them all, else its label. A title names the swept keys."""
    values = [variant.values.get(key) for key in findings.study.swept]
    return " ".join(map(str, values)) if values and None not in values else variant.label


def mean_interval(findings: Findings, variant: Variant) -> tuple[float, float]:
    """Return the confidence interval of the mean; the mean itself if nothing is known about the noise."""
    scores = variant.scores(findings.score)
    try:
        if findings.sigma is not None and len(scores) < 2:
            comparison = known_sigma(scores, 0.0, findings.sigma)
        else:
            comparison = one_sample(scores, 0.0)
    except GolfError:
        return scores[0], scores[0]
    return comparison.interval(findings.rules.confidence)


def swept_numbers(findings: Findings, shown: Iterable[Variant]) -> dict[str, float]:
    """Return the swept number by variant id, if one key was swept over three or more numbers; else nothing."""
    swept = findings.study.swept
    try:
        numbers = {v.id: float(v.values[swept[0]]) for v in shown} if len(swept) == 1 else {}
    except (KeyError, ValueError):
        return {}
    return numbers if len(set(numbers.values())) > 2 else {}
