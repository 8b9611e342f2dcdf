"""Verdicts of a sweep that looks after every round of seeds and stops variants as soon as they are decided.

Decisions are computed from the scores alone, look by look from the first one. A sweep that was killed therefore
decides again what it had decided, and a report says the same as the sweep.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from scipy.special import ndtri, stdtrit

from golf.errors import GolfError
from golf.lab.report.blocks import Blocks
from golf.lab.report.boundaries import nominal_levels, repeated_p
from golf.lab.report.comparison import CODE_MAY_BE, NOT_COMPARABLE, blocks_of, compare
from golf.lab.report.losses import is_selection, p_better, p_worse
from golf.lab.report.machines import MACHINE_MAY_BE, Fit
from golf.lab.report.rows import REFUSED
from golf.lab.report.statistics import ONE_SEED, Comparison
from golf.lab.report.variants import Variant, compared_before
from golf.lab.report.verdicts import (
    BETTER,
    NO_DIFFERENCE,
    NO_VERDICT,
    WORSE,
    Verdict,
    margin_bpb,
    measured,
    with_losses,
)
from golf.run.result import INTERRUPTED
from golf.settings.config import RulesConfig

# One seed of each tells nothing about its own spread.
FIRST_LOOK = 2
FEW_VARIANTS = 4  # variants of a sweep, with the reference, below which its spread says little
MOST_APART = 3  # looks after which a variant that shares no machine with the reference is given up
FUTILE = "futile"  # not as much better as is worth finding; whether it is worse was not asked


@dataclass(frozen=True)
class SequentialPlan:
    """Settings of a sequential sweep, fixed before its first look."""

    seeds: tuple[int, ...]  # seed of each round; their number is the most looks
    reference: str  # id of the variant that the others are compared with
    effect_bpb: float | None = None  # improvement worth finding; null = what the last look finds at the rule's power
    most_runs: int | None = None  # runs after which no further round begins
    moderated: bool = False  # began under sweep.test=moderated, which golf no longer has
    asks_worse: bool = False  # the question is what is worse than the reference: does it need what others leave out?

    @property
    def looks(self) -> int:
        """Return the most looks."""
        return len(self.seeds)

    @staticmethod
    def of(values: Mapping[str, Any] | None) -> SequentialPlan | None:
        """Return the plan from its plain values in a sweep's record; None for a sweep of a fixed size."""
        if not values:
            return None
        moderated = bool(values.get("moderated") or values.get("prior"))
        effect_bpb, most_runs = values.get("effect_bpb"), values.get("most_runs")
        asks_worse = bool(values.get("asks_worse"))
        return SequentialPlan(tuple(values["seeds"]), values["reference"], effect_bpb, most_runs, moderated, asks_worse)

    def values(self) -> dict[str, Any]:
        """Return the plan as plain values for a sweep's record."""
        return asdict(self)


@dataclass(frozen=True)
class SequentialComparison(Comparison):
    """A comparison at a look that was one of several; its intervals hold at every look at once."""

    look: int
    looks: int
    shared: float = 0.0  # share of the variance within variants that the runs of one seed have in common

    def interval(self, confidence: float) -> tuple[float, float]:
        """Return the repeated confidence interval of the true difference (Jennison and Turnbull 2000, chapter 9)."""
        level = nominal_levels((1 - confidence) / 2, self.looks, FIRST_LOOK)[self.look - 1]
        half = -float(ndtri(level) if math.isinf(self.df) else stdtrit(self.df, level)) * self.standard_error
        return self.difference - half, self.difference + half


@dataclass
class SequentialVerdicts:
    """Decisions of the looks so far."""

    verdicts: dict[str, Verdict] = field(default_factory=dict)  # by variant id
    active: list[str] = field(default_factory=list)  # ids of the variants that go on
    looks: int = 0  # rounds that were complete and looked at


@dataclass
class _Arm:
    """A variant on its way through the looks."""

    variant: Variant
    p: dict[str, list[float]] = field(default_factory=lambda: {BETTER: [], WORSE: []})  # 1 where no test was possible
    comparison: SequentialComparison | None = None
    of_sweep: SequentialComparison | None = None  # the same difference by one spread for the whole sweep
    reason: str = ""


def judge_sequentially(
    variants: Sequence[Variant], reference: Variant, rules: RulesConfig, plan: SequentialPlan, *, score: str = "final"
) -> SequentialVerdicts:
    """Look at every complete round in turn and return the verdicts at each variant's last look.

    A variant is better if the repeated test shows an improvement beyond the rule's margin, and worse if it shows any
    deterioration. It is futile if it shows that the improvement is smaller than the plan's effect; where the plan asks
    what is worse, that the deterioration is. The errors of
    better and of worse stay below `rules.alpha` each, over all looks and all variants: a level is shared out evenly
    and passed on by those that were decided (Maurer and Bretz 2013). Stopping for futility costs power only, so it
    takes one spread for the whole sweep, also where one variant stands out by its own.
    """
    looking = _Looking(rules, plan, score, reference)
    # A configuration that was refused is no comparison.
    asked = [v for v in variants if v is not reference and any(row.state != REFUSED for row in v.rows)]
    looking.arms = {v.id: _Arm(v) for v in asked}
    looking.family = len(looking.arms) + len(compared_before(variants))
    looking.left = {BETTER: looking.family, WORSE: looking.family}
    for look in range(1, plan.looks + 1):
        if not looking.arms or not looking.is_complete(look):
            break
        looking.look_at(look)
    for id, arm in looking.arms.items():
        looking.done.verdicts[id] = looking.verdict(arm, NO_VERDICT, arm.reason or "undecided so far")
    looking.done.active = list(looking.arms)
    return looking.done


@dataclass
class _Looking:
    """The state between two looks."""

    rules: RulesConfig
    plan: SequentialPlan
    score: str
    reference: Variant
    arms: dict[str, _Arm] = field(default_factory=dict)  # undecided variants by id
    left: dict[str, int] = field(default_factory=dict)  # kind → hypotheses not rejected yet, which share the level
    gone: list[Variant] = field(default_factory=list)  # decided variants with the runs that decided them
    family: int = 0  # comparisons of the sweep
    done: SequentialVerdicts = field(default_factory=SequentialVerdicts)

    def is_complete(self, look: int) -> bool:
        """Tell whether the runs of all rounds up to `look` have ended, those of undecided variants and reference."""
        seeds = set(self.plan.seeds[:look])
        variants = [self.reference, *(arm.variant for arm in self.arms.values())]
        # An interrupted run will be made again, so its round is not over.
        ended = ({r.seed for r in v.rows if not r.is_open and r.state != INTERRUPTED} for v in variants)
        return all(map(seeds.issubset, ended))

    def look_at(self, look: int) -> None:
        """Compare every undecided variant on the seeds of the rounds up to `look`, and decide what can be."""
        self.done.looks = look
        reference = self._at(self.reference, look)
        now = {id: self._at(arm.variant, look) for id, arm in self.arms.items()}
        # All are compared before any leaves, because the fit is of the whole sweep. Those that left still tell what
        # seeds share and how much scores scatter.
        among = blocks_of([*now.values(), *self.gone], reference, self.score)
        for id, arm in self.arms.items():
            self._compare(arm, now[id], reference, among, look)
        self._decide(BETTER, look)
        self._decide(WORSE, look)
        for id, arm in list(self.arms.items()):
            if why := self._why_it_leaves(arm, now[id], reference, look):
                self._leave(id, *why)

    def _at(self, variant: Variant, look: int) -> Variant:
        return replace(variant, rows=tuple(row for row in variant.rows if row.seed in self.plan.seeds[:look]))

    def _compare(self, arm: _Arm, variant: Variant, reference: Variant, among: Blocks | None, look: int) -> None:
        try:
            if look < FIRST_LOOK:
                raise GolfError(ONE_SEED)
            comparison = compare(variant, reference, score=self.score, among=among)
            margin = margin_bpb(variant, reference, self.rules)
        except GolfError as error:
            arm.reason = str(error)
            for history in arm.p.values():
                history.append(1.0)
            return
        # At the small levels of repeated looks t tests of few seeds of two or three variants err more than they say.
        if not isinstance(comparison, Fit) or comparison.arms < FEW_VARIANTS:
            comparison = replace(comparison, df=max(1, comparison.df - 1))
        arm.comparison, arm.reason = self._at_look(comparison, look), ""
        arm.of_sweep = self._at_look(comparison.of_residuals if isinstance(comparison, Fit) else comparison, look)
        arm.p[BETTER].append(p_better(arm.comparison, variant, reference, self.score, margin))
        arm.p[WORSE].append(p_worse(arm.comparison, variant, reference, self.score))

    def _at_look(self, comparison: Comparison, look: int) -> SequentialComparison:
        difference, error, df = comparison.difference, comparison.standard_error, comparison.df
        shared = comparison.shared if isinstance(comparison, Fit) else 0.0
        return SequentialComparison(difference, error, df, comparison.test, look, self.plan.looks, shared)

    def _levels(self, level: float) -> tuple[float, ...]:
        return nominal_levels(level, self.plan.looks, FIRST_LOOK)

    def _decide(self, kind: str, look: int) -> None:
        """Take out the variants that this look shows to be `kind`. Their share of the level passes to the others."""
        while True:
            # Each rejection leaves more of the level to the others, which may then be shown as well.
            level = self._levels(self.rules.alpha / max(1, self.left[kind]))[look - 1]
            if not (crossed := [id for id, arm in self.arms.items() if arm.p[kind][-1] < level]):
                return
            for id in crossed:
                self._leave(id, kind, "")
            self.left[kind] -= len(crossed)

    def _why_it_leaves(self, arm: _Arm, now: Variant, reference: Variant, look: int) -> tuple[str, str] | None:
        """Return the verdict and the reason of a variant that need not go on; None if it goes on."""
        is_final = arm.reason.startswith(NOT_COMPARABLE) or arm.reason.endswith(CODE_MAY_BE)
        if is_final or (look >= MOST_APART and arm.reason.endswith(MACHINE_MAY_BE)):
            return NO_VERDICT, arm.reason
        if look > 1 and is_selection(now, reference):
            return NO_VERDICT, ""
        if look > 1 and not reference.counted:
            return NO_VERDICT, arm.reason
        if arm.of_sweep and arm.of_sweep.look == look:
            effect = self._effect(arm.of_sweep, now, reference)
            # `p_above` is the p of the hypothesis that the true difference is at most its argument.
            p = arm.of_sweep.p_below(effect) if self.plan.asks_worse else arm.of_sweep.p_above(-effect)
            if p < self._levels(1 - self.rules.power)[look - 1]:
                change = "a deterioration" if self.plan.asks_worse else "an improvement"
                return FUTILE, f"{change} of {effect:.4f} bpb is unlikely"
        if look == self.plan.looks:
            return (NO_DIFFERENCE, "no looks are left") if arm.comparison else (NO_VERDICT, arm.reason)
        return None

    def _effect(self, comparison: SequentialComparison, now: Variant, reference: Variant) -> float:
        """Return the improvement worth finding, or the deterioration, in bits per byte."""
        if self.plan.effect_bpb is not None:
            return self.plan.effect_bpb
        # A standard error falls with the root of the seeds: this is the one to expect at the last look.
        last_error = comparison.standard_error * math.sqrt(comparison.look / comparison.looks)
        side = WORSE if self.plan.asks_worse else BETTER
        quantiles = float(ndtri(1 - self.rules.alpha / max(1, self.left[side])) + ndtri(self.rules.power))
        margin = 0.0 if self.plan.asks_worse else margin_bpb(now, reference, self.rules)
        return margin + quantiles * last_error

    def _leave(self, id: str, kind: str, reason: str) -> None:
        arm = self.arms.pop(id)
        self.gone.append(self._at(arm.variant, self.done.looks))
        self.done.verdicts[id] = self.verdict(arm, kind, reason)

    def verdict(self, arm: _Arm, kind: str, reason: str) -> Verdict:
        """Return the verdict of an arm at its last look, with the p that holds whenever the looking stops."""
        look = self.done.looks
        fitted = arm.comparison.difference if arm.comparison else None
        shown = measured(self._at(arm.variant, look), self._at(self.reference, look), self.score, fitted)
        verdict = replace(shown, kind=kind)
        if arm.comparison:
            side = WORSE if kind == WORSE or (kind != BETTER and arm.comparison.difference > 0) else BETTER
            p = repeated_p(tuple(arm.p[side]), self.plan.looks, FIRST_LOOK)
            # The level was shared out evenly among the hypotheses that are left, and p is scaled alike.
            p = min(1.0, p * max(1, self.left[side]))
            if kind in (BETTER, WORSE):
                # The level was crossed, and p comes from a grid of levels that lie 5 % apart.
                p = min(p, math.nextafter(self.rules.alpha, 0.0))
            verdict = replace(verdict, comparison=arm.comparison, p=p, family=self.family)
        said = ", ".join(filter(None, (reason, f"look {look} of at most {self.plan.looks}" if look else "")))
        return with_losses(replace(verdict, reason=said), self._at(arm.variant, look), self._at(self.reference, look))
