"""Sentences on where a difference comes from: of training, steps, quantization and evaluation, and at equal bytes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from golf.lab.report.findings import Findings, judged
from golf.lab.report.origin import (
    PUBLIC_SLOPE,
    PUBLIC_SLOPE_SD,
    about_origins,
    at_equal_bytes,
    parts,
    parts_for_programs,
)
from golf.lab.report.sequential import SequentialPlan
from golf.lab.report.statistics import Comparison, welch
from golf.lab.report.study import Study
from golf.lab.report.texts import FINEWEB
from golf.lab.report.variants import Variant
from golf.settings.config import RulesConfig
from golf.submission.record_folder import verdict_in_words
from tests.lab.report.runs import variant

STEPS = {"a": 13_700, "b": 13_000}
WEIGHTS = 17_000_000


def trained(
    name: str, pre: list[float], gap: float, evaluation: float = 0.0, size: int = 15_800_000, **changes: Any
) -> Variant:
    """Return a variant whose artifacts lose `gap`, of which its evaluation wins back `evaluation`."""
    made = variant(name, pre)
    noise = np.linspace(-1e-5, 1e-5, len(pre))
    rows = [
        replace(
            row,
            pre_quant_bpb=x,
            post_quant_bpb=x + gap + e,
            val_bpb=x + gap + e - evaluation,
            total_bytes=size,
            model_params=WEIGHTS,
            **{"steps": STEPS[name[0]], **changes},
        )
        for row, x, e in zip(made.rows, pre, noise, strict=True)
    ]
    return replace(made, rows=tuple(rows))


def compared(reference: Variant, *others: Variant) -> Findings:
    return judged(Study("", (reference, *others), reference), RulesConfig())


def sentences(reference: Variant, other: Variant) -> list[str]:
    return list(about_origins(compared(reference, other)))


PRE = [1.2300, 1.2306, 1.2297, 1.2303]
LOWER = [x - 0.0100 for x in PRE]


def test_the_parts_of_a_difference_add_up() -> None:
    reference = trained("a", PRE, 0.0070)
    (said,) = sentences(reference, trained("b", LOWER, 0.0030, size=15_841_000))
    assert said.startswith("b: the means' −0.0140 bpb are −0.0100 before quantization (")
    assert "and −0.0040 by quantization (−0.0040 to −0.0040)" in said
    # On a text that is not the challenge's, and by steps that are the same in all runs of a side, nothing tells more.
    assert "; with 41,000 bytes more (−0.0139 at equal bytes, −0.0145 to −0.0134) and " in said
    assert said.endswith(" and 5.1% fewer steps, whose part these runs do not tell.")


def test_at_record_length_public_runs_tell_what_steps_are_worth() -> None:
    sides = [trained(name, pre, 0.007, data=FINEWEB) for name, pre in (("b", LOWER), ("a", PRE))]
    equal, steps = parts((sides[0], sides[1]), (), 0.9)[:2]
    worth, error = PUBLIC_SLOPE * math.log(13_000 / 13_700), PUBLIC_SLOPE_SD * math.log(13_700 / 13_000)
    assert steps.difference_bpb == pytest.approx(worth) and steps.interval_bpb == pytest.approx(
        (worth - 1.645 * error, worth + 1.645 * error), abs=1e-6
    )
    assert equal.difference_bpb + steps.difference_bpb == pytest.approx(-0.0100)
    whole = welch(LOWER, PRE)
    half = (whole.interval(0.9)[1] + 0.0100) * math.hypot(whole.standard_error, error) / whole.standard_error
    assert equal.interval_bpb == pytest.approx((-0.0100 - worth - half, -0.0100 - worth + half))
    assert ", +0.0019 by 5.1% fewer steps (+0.0012 to +0.0027)" in sentences(sides[1], sides[0])[0]


@pytest.mark.parametrize("with_other_length", [False, True])
def test_runs_of_other_pace_tell_what_steps_are_worth(with_other_length: bool) -> None:
    """Scores are −0.08 · ln steps + 0.02 of the variant's own + noise, with a variant of fewer steps."""
    rng = np.random.default_rng(3)

    def runs(name: str, steps: list[int], shift: float) -> Variant:
        scores = [2.5 + shift - 0.08 * math.log(n) + 5e-4 * rng.standard_normal() for n in steps]
        made = trained(name, scores, 0.001)
        return replace(made, rows=tuple(replace(row, steps=n) for row, n in zip(made.rows, steps, strict=True)))

    reference = runs("a", [1000, 1030, 1060, 1090] if not with_other_length else [1000] * 4, 0.0)
    quick = runs("b", [850, 880, 900, 930] if not with_other_length else [890] * 4, -0.02)
    shorter = replace(runs("a2", [700] * 4, 0.0), id="other")
    if with_other_length:
        # Runs that differ in the length alone are of one model.
        for side, length in ((reference, 1000), (shorter, 700)):
            side.__dict__["settings"] = {"model.model_dim": 64, "schedule.iterations": length}
    equal, steps = parts((quick, reference), (shorter,), 0.9)[:2]
    logs = [float(np.mean([math.log(row.steps or 1) for row in side.rows])) for side in (quick, reference)]
    assert equal.part == "before quantization at equal steps"
    assert equal.difference_bpb == pytest.approx(-0.02, abs=0.002)
    assert steps.difference_bpb == pytest.approx(-0.08 * (logs[0] - logs[1]), abs=0.002)
    assert equal.difference_bpb + steps.difference_bpb == pytest.approx(
        float(np.mean([r.pre_quant_bpb for r in quick.rows]) - np.mean([r.pre_quant_bpb for r in reference.rows]))
    )
    for part, true in ((equal, -0.02), (steps, -0.08 * (logs[0] - logs[1]))):
        assert part.interval_bpb and part.interval_bpb[0] < true < part.interval_bpb[1]


def test_intervals_of_the_parts_hold_what_is_true() -> None:
    """Of 90 % intervals nine in ten hold the truth where pace varies by a tenth."""
    rng, held = np.random.default_rng(5), []
    for _ in range(150):
        sides = []
        for name, shift, pace in (("b", -0.02, 0.85), ("a", 0.0, 1.0)):
            steps = np.round(1000 * pace * np.exp(0.1 * rng.standard_normal(4))).astype(int)
            scores = (2.5 + shift - 0.3 * np.log(steps) + 5e-3 * rng.standard_normal(4)).tolist()
            made = trained(name, scores, 0.001)
            rows = tuple(replace(row, steps=int(n)) for row, n in zip(made.rows, steps, strict=True))
            sides.append(replace(made, rows=rows))
        found = parts((sides[0], sides[1]), (), 0.9)
        if found[0].part == "before quantization at equal steps" and found[0].interval_bpb:
            held.append(found[0].interval_bpb[0] < -0.02 < found[0].interval_bpb[1])
    assert len(held) > 130 and 0.84 <= np.mean(held) <= 0.95


def test_bytes_are_turned_into_bits_by_coarser_steps() -> None:
    """Twice the steps take a bit off each weight and quadruple the gap; beyond a bit nothing is said."""
    comparison = Comparison(-0.0100, 0.0005, math.inf, "Welch")
    reference = trained("a", PRE, 0.0070)
    for bits in (0.5, -0.5):
        larger = trained("b", LOWER, 0.0040, size=15_800_000 + round(bits * WEIGHTS / 8))
        cost = 0.0040 * (4**bits - 1)
        told = at_equal_bytes((larger, reference), comparison, 0.9)
        assert told and told.difference_bpb == pytest.approx(-0.0100 + cost, rel=1e-3)
        half = 1.645 * math.hypot(0.0005, 0.2 * cost)
        assert told.interval_bpb == pytest.approx((told.difference_bpb - half, told.difference_bpb + half), rel=1e-3)
    far = trained("b", LOWER, 0.0040, size=15_800_000 + round(1.1 * WEIGHTS / 8))
    assert at_equal_bytes((far, reference), comparison, 0.9) is None
    assert "; with 2,337,500 bytes more and 5.1% fewer" in sentences(reference, far)[0]


def test_programs_and_readmes_have_the_parts() -> None:
    reference, other = trained("a", PRE, 0.0070), trained("b", LOWER, 0.0030, size=15_841_000)
    findings = compared(reference, other)
    told = parts_for_programs(findings, other)
    assert told and [part["part"] for part in told] == ["before_quantization", "by_quantization", "at_equal_bytes"]
    assert sum(part["difference_bpb"] for part in told[:2]) == pytest.approx(-0.0140)
    assert all(part["interval_low_bpb"] <= part["difference_bpb"] <= part["interval_high_bpb"] for part in told)
    assert parts_for_programs(findings, reference) is None
    text = verdict_in_words(findings.verdicts["b"], other, reference, RulesConfig())
    assert (
        text.startswith("**better** than a (4 seeds)") and text.count("\n\nWhere the difference comes from: the m") == 1
    )
    assert "Where" not in verdict_in_words(findings.verdicts["b"], other, 1.23, RulesConfig())


def test_in_rounds_the_parts_are_of_the_runs_that_the_verdict_compares() -> None:
    """A reference goes on with seeds that a decided variant has not: their mean is no part of its difference."""
    reference = trained("a", [*PRE, 1.2600, 1.2620], 0.0070)
    other = trained("b", LOWER, 0.0030)
    plan = SequentialPlan(tuple(row.seed or 0 for row in reference.rows), "a", effect_bpb=0.001)
    findings = judged(Study("", (reference, other), reference, plan=plan), RulesConfig())
    verdict = findings.verdicts["b"].comparison
    told = parts_for_programs(findings, other)
    assert verdict and told and verdict.difference == pytest.approx(-0.0140, abs=1e-5)
    assert sum(part["difference_bpb"] for part in told[:2]) == pytest.approx(verdict.difference)
    (said,) = about_origins(findings)
    assert said.startswith("b: the means' −0.0140 bpb are")


def test_formats_of_the_same_checkpoints_are_pairs() -> None:
    """What quantization costs them differs by 0.0020 with little noise, while the seeds scatter by 0.0004."""
    noise = iter([1e-5, -1e-5, 2e-5, 0.0])
    reference, finer = trained("a", PRE, 0.0070), trained("a", PRE, 0.0050)
    rows = tuple(
        replace(row, val_bpb=(row.val_bpb or 0) + e, post_quant_bpb=(row.post_quant_bpb or 0) + e)
        for row, e in zip(finer.rows, noise, strict=True)
    )
    (part,) = parts((replace(finer, id="b", rows=rows), reference), (), 0.9)
    assert part.part == "by quantization" and part.difference_bpb == pytest.approx(-0.0020 + 5e-6)
    low, high = part.interval_bpb or (0.0, 0.0)
    # t of 3 degrees of freedom times the standard error of the four differences.
    assert high - low == pytest.approx(2 * 2.3534 * np.std([1e-5, -1e-5, 2e-5, 0.0], ddof=1) / 2, rel=1e-3)


def test_two_that_differ_in_length_alone_differ_by_steps_alone() -> None:
    sides = [trained(name, pre, 0.007, steps=n) for name, pre, n in (("b", LOWER, 1200), ("a", PRE, 1000))]
    for side, length in zip(sides, (1200, 1000), strict=True):
        side.__dict__["settings"] = {"model.model_dim": 64, "schedule.iterations": length}
    (part,) = parts((sides[0], sides[1]), (), 0.9)[:1]
    assert part.part == "by steps" and part.difference_bpb == pytest.approx(-0.0100)


@pytest.mark.parametrize("evaluation", [0.0, 0.02])
def test_an_evaluation_is_named_where_there_is_one(evaluation: float) -> None:
    reference = trained("a", PRE, 0.0070, evaluation)
    (said,) = sentences(reference, trained("b", LOWER, 0.0070, evaluation * 1.5))
    assert ("by evaluation" in said) == (evaluation > 0)
    # All seeds gain the same, so that there is no spread to tell an interval by.
    assert "bytes" not in said and (evaluation == 0 or "−0.0100 by evaluation;" in said)


def test_what_is_not_better_has_no_sentence() -> None:
    reference = trained("a", PRE, 0.0070)
    assert sentences(reference, trained("b", PRE[::-1], 0.0070)) == []
    assert sentences(trained("b", LOWER, 0.007), reference) == []
