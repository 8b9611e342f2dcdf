"""A judged study: verdicts, the best variant and its ties. `remarks` says how far they can be trusted."""

from __future__ import annotations

from dataclasses import dataclass

from golf.errors import GolfError
from golf.report.comparison import NOT_COMPARABLE
from golf.report.study import Study
from golf.report.variants import SCORES, Variant
from golf.report.verdicts import Ranking, Verdict, judge, ranking
from golf.settings.config import RulesConfig

SCORE_TITLES = {
    "final": "final bpb",
    "pre_quant": "pre-quant bpb",
    "post_quant": "post-quant bpb",
    "sliding": "sliding bpb",
    "ttt": "TTT bpb",
}


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
    ways = {way for v in study.variants for way in v.known("how")}
    chosen = score or ("final" if len(ways) < 2 else "post_quant")
    if chosen not in SCORES:
        raise GolfError(f"There is no score {chosen}: choose one of {', '.join(SCORES)}.")
    reference = against if against is not None else study.reference
    verdicts = {}
    if reference is not None:
        verdicts = judge(study.variants, reference, rules, score=chosen, sigma=sigma, test=test)
    # A score on another text or taken in another way must not become the best one.
    alike = [v for v in study.variants if v.id not in verdicts or not verdicts[v.id].reason.startswith(NOT_COMPARABLE)]
    ranked = ranking(alike, rules, score=chosen, sigma=sigma)
    return Findings(study, rules, chosen, reference, verdicts, ranked, sigma)


def score_title(findings: Findings) -> str:
    """Return the name of the compared score; final scores that are all standard ones are called post-quant bpb."""
    ways = {way for v in findings.study.variants for way in v.known("how")}
    if findings.score == "final" and ways == {"standard"}:
        return SCORE_TITLES["post_quant"]
    return SCORE_TITLES[findings.score]


def variant_name(findings: Findings, variant: Variant) -> str:
    """Return the swept values alone if the variant has them all, else its label. A title names the swept keys."""
    values = [variant.values.get(key) for key in findings.study.swept]
    return " ".join(map(str, values)) if values and None not in values else variant.label
