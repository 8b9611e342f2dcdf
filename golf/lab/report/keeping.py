"""Keep or discard: the decision on a candidate against the incumbent, and which keeps of a chain stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from golf.errors import GolfError
from golf.lab.report.comparison import check_code, check_comparable
from golf.lab.report.findings import Findings
from golf.lab.report.sequential import FUTILE
from golf.lab.report.variants import Variant
from golf.lab.report.verdicts import BETTER, WORSE, Verdict
from golf.words import counted

KEEP, DISCARD, UNDECIDED = "keep", "discard", "undecided"  # decisions on a candidate
STANDS, FALLS, REPLACED = "stands", "falls", "replaced"  # what a confirmation says of a keep, besides UNDECIDED
LOWER, NOT_LOWER = "lower at one seed", "not lower at one seed"  # reasons of a greedy decision
MUCH_FASTER = 1.1  # factor on the steps beyond which the pace is named, the candidate's or the machine's
INERT = "the same score to the last digit, so it changes nothing here"


@dataclass(frozen=True)
class Decision:
    """A decision with the measured difference in bits per byte, negative where the first of two is better."""

    decision: str
    reason: str
    difference_bpb: float | None = None
    interval_low_bpb: float | None = None  # None at one seed
    interval_high_bpb: float | None = None
    p: float | None = None


def decide(findings: Findings, candidate: str) -> Decision:
    """Return the decision on the variant `candidate` against the study's reference, the incumbent.

    A sweep in rounds keeps what is better and discards what is worse or futile. One seed of each keeps what is lower.
    Raises `GolfError` if the two do not compare or the incumbent has no score.
    """
    incumbent, variant = findings.reference, _variant(findings, candidate)
    assert isinstance(incumbent, Variant)
    if not incumbent.counted:
        raise GolfError(f"The incumbent has no run that counts: {_states(incumbent)}.")
    if not variant.counted:
        return Decision(DISCARD, _states(variant))
    check_comparable(variant, incumbent, findings.score)
    check_code(variant, incumbent)
    verdict = findings.verdicts[candidate]
    if findings.looks is not None:
        kinds = {BETTER: KEEP, WORSE: DISCARD, FUTILE: DISCARD}
        return _of(findings, verdict, kinds.get(verdict.kind, UNDECIDED))
    difference = (variant.mean(findings.score) or 0.0) - (incumbent.mean(findings.score) or 0.0)
    if difference == 0:
        return Decision(DISCARD, INERT, difference)
    decision, reason = (KEEP, LOWER) if difference < 0 else (DISCARD, NOT_LOWER)
    return Decision(decision, f"{reason}{_other_steps(variant, incumbent)}", difference)


def _other_steps(one: Variant, other: Variant) -> str:
    """Return how many steps two runs took under a clock, if that alone may make the difference; else nothing."""
    steps = [variant.counted[0].steps or 0 for variant in (one, other)]
    return f", by {counted(steps[0], 'step')} against {steps[1]:,}" if max(steps) > MUCH_FASTER * min(steps) else ""


def standing(findings: Findings, without: str) -> Decision:
    """Return whether a keep stands, by the variant `without` it against the chain, the study's reference.

    The difference is what the keep brings, negative where it helps. It stands if the variant without it is worse, and
    falls if that is unlikely or the variant is better.
    """
    if not _variant(findings, without).counted:
        return Decision(UNDECIDED, _states(_variant(findings, without)))
    verdict = findings.verdicts[without]
    found = _of(findings, verdict, {WORSE: STANDS, FUTILE: FALLS, BETTER: FALLS}.get(verdict.kind, UNDECIDED))
    if found.difference_bpb is None:
        return found
    low, high = (bound and -bound for bound in (found.interval_high_bpb, found.interval_low_bpb))
    reason = f"without it {found.reason}"
    return replace(
        found, reason=reason, difference_bpb=-found.difference_bpb, interval_low_bpb=low, interval_high_bpb=high
    )


def _of(findings: Findings, verdict: Verdict, decision: str) -> Decision:
    low, high = verdict.comparison.interval(findings.rules.confidence) if verdict.comparison else (None, None)
    reason = f"{verdict.kind}: {verdict.reason}" if verdict.reason else verdict.kind
    return Decision(decision, reason, verdict.difference_bpb, low, high, verdict.p)


def _variant(findings: Findings, id: str) -> Variant:
    return next(v for v in findings.study.variants if v.id == id)


def _states(variant: Variant) -> str:
    return ", ".join(dict.fromkeys(f"{r.state}: {r.reason}" if r.reason else r.state for r in variant.rows))


def worst(decisions: Sequence[Decision]) -> str:
    """Return the decision on a chain: it falls with a keep that falls, and stands if all its keeps do."""
    kinds = {decision.decision for decision in decisions}
    return next((kind for kind in (FALLS, UNDECIDED) if kind in kinds), STANDS)
