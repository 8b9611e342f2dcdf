"""Verdicts on sweeps of known truth, on published scores, and on scores that allow none."""

import math
from dataclasses import replace

import numpy as np
import pytest

from golf.bits import nats_per_token
from golf.lab.report.comparison import compare
from golf.lab.report.findings import judged
from golf.lab.report.machines import MACHINE_MAY_BE
from golf.lab.report.remarks import remarks_on
from golf.lab.report.rows import IMPORTED, OWN, UNFINISHED, RunRow
from golf.lab.report.statistics import detection_power, smallest_difference
from golf.lab.report.study import Study
from golf.lab.report.variants import Variant
from golf.lab.report.verdicts import (
    BETTER,
    MARGIN_NOT_SHOWN,
    NO_DIFFERENCE,
    NO_VERDICT,
    WORSE,
    judge,
    ranking,
)
from golf.settings.config import RulesConfig
from tests.lab.report.runs import BYTES_PER_TOKEN, LOWER_LR, variant

HOUSE = RulesConfig()
STRICT = RulesConfig(alpha=0.01, margin_nats=0.005)
AT_ONE_PERCENT = RulesConfig(alpha=0.01)
REFERENCE = variant("reference", [1.2286, 1.2279, 1.2291])


def verdict_of(variant: Variant, rules: RulesConfig = HOUSE, **options) -> tuple[str, str]:
    found = judge([REFERENCE, variant], REFERENCE, rules, **options)[variant.id]
    return found.kind, found.reason


@pytest.mark.slow
@pytest.mark.parametrize("rules", [HOUSE, RulesConfig(alpha=0.25)], ids=["house", "frontier"])
def test_nothing_is_better_more_often_than_the_rule_allows(rules: RulesConfig) -> None:
    """In 2,000 sweeps of five equal variants, verdicts of better or worse are as rare as the rule promises."""
    noise = np.random.default_rng(5).normal(1.2, 0.0007, (2000, 6, 3))
    calls = []
    for sweep in noise:
        variants = [variant(str(i), scores) for i, scores in enumerate(sweep.tolist())]
        calls.append({v.kind for v in judge(variants, variants[0], rules).values()})
    assert 0 < sum(BETTER in kinds for kinds in calls) / len(calls) <= rules.alpha
    assert sum(WORSE in kinds for kinds in calls) / len(calls) <= rules.alpha


def test_a_margin_is_not_granted_to_what_just_meets_it() -> None:
    """Of 2,000 variants that are better by exactly the margin, the strict rule passes at most one in a hundred."""
    margin_bpb = 0.005 / (math.log(2) * BYTES_PER_TOKEN)
    noise = np.random.default_rng(6).normal(1.2, 0.0007, (2000, 2, 5))
    kinds = []
    for ours, theirs in (noise - [[[margin_bpb], [0.0]]]).tolist():
        reference = variant("reference", theirs)
        kinds.append(judge([variant("a", ours)], reference, STRICT)["a"].kind)
    assert 0 < kinds.count(BETTER) / len(kinds) <= STRICT.alpha
    assert kinds.count(MARGIN_NOT_SHOWN) > 1500


@pytest.mark.parametrize("seeds", [3, 5])
def test_a_true_difference_is_found_as_often_as_computed(seeds: int) -> None:
    sigma = 0.0007
    true = smallest_difference(sigma, seeds, alpha=0.05, power=0.8)
    noise = np.random.default_rng(7).normal(1.2, sigma, (2000, 2, seeds)) - [[[true], [0.0]]]
    found = sum(judge([variant("a", a)], variant("reference", b), HOUSE)["a"].kind == BETTER for a, b in noise.tolist())
    assert found / 2000 == pytest.approx(detection_power(true, sigma, seeds, alpha=0.05), abs=0.025)


def test_the_public_learning_rate_sweep() -> None:
    """Record 2026-03-18_LowerLR has six single runs; seeds scatter by 0.0007 bpb on a machine, 0.0011 across."""
    sweep = {value: variant(value, [bpb]) for value, bpb in LOWER_LR.items()}

    def kinds(reference: str, sigma: float | None) -> dict[str, str]:
        found = judge(list(sweep.values()), sweep[reference], AT_ONE_PERCENT, sigma=sigma)
        return {value: verdict.kind for value, verdict in found.items()}

    one_machine, across = kinds("0.04", 0.0007), kinds("0.04", 0.0011)
    assert one_machine == {
        "0.06": WORSE, "0.03": NO_DIFFERENCE, "0.025": BETTER, "0.02": BETTER, "0.015": BETTER
    }  # fmt: skip
    assert across["0.025"] == NO_DIFFERENCE and across["0.02"] == BETTER and across["0.06"] == WORSE  # "likely real"
    beside_best = kinds("0.02", 0.0007)
    assert beside_best["0.015"] == beside_best["0.025"] == NO_DIFFERENCE
    found = ranking(list(sweep.values()), AT_ONE_PERCENT, {}, None, sigma=0.0007)
    assert found.best is sweep["0.02"] and found.tied == {"0.015", "0.025"}
    gain = judge(list(sweep.values()), sweep["0.04"], AT_ONE_PERCENT)["0.02"]
    assert gain.difference_bpb == pytest.approx(-0.0056) and gain.difference_nats == pytest.approx(-0.0095, abs=1e-4)
    assert set(kinds("0.04", None).values()) == {NO_VERDICT}  # single runs, and nobody said how much they scatter


def test_units_are_never_mixed() -> None:
    better = variant("a", [x - 0.0040 for x in (1.2286, 1.2279, 1.2291)])
    found = judge([better], REFERENCE, STRICT)["a"]
    assert found.difference_nats == pytest.approx(nats_per_token(-0.0040, BYTES_PER_TOKEN))
    coarse = variant("b", [1.2246, 1.2239, 1.2251], bytes_per_token=3.7)
    across = judge([coarse], REFERENCE, HOUSE)["b"]
    assert across.difference_nats is None and across.kind == BETTER  # bits per byte compare, nats per token do not
    unknown = variant("c", [1.2246, 1.2239, 1.2251], bytes_per_token=None)
    number = judge([unknown], 1.2286, STRICT)["c"]
    assert number.kind == NO_VERDICT and "bytes per token" in number.reason


def test_few_seeds_get_no_verdict_or_a_wide_one() -> None:
    assert verdict_of(variant("a", [1.1])) == (NO_VERDICT, "one seed")
    assert verdict_of(variant("a", [1.2285, 1.2290]))[0] == NO_DIFFERENCE
    assert verdict_of(variant("a", [1.1]), sigma=0.0007)[0] == BETTER
    own = compare(variant("a", [1.2, 1.3]), REFERENCE, sigma=0.0007)
    assert own.test == "Welch"  # a borrowed standard deviation does not replace one's own


def test_seeds_that_change_nothing_are_no_evidence() -> None:
    constant, other = variant("a", [1.1, 1.1, 1.1]), variant("b", [1.2, 1.2, 1.2])
    found = judge([constant], other, HOUSE)["a"]
    assert found.kind == NO_VERDICT and "no spread" in found.reason and found.difference_bpb == pytest.approx(-0.1)
    assert verdict_of(constant)[0] == BETTER  # the reference's spread is there to test against


@pytest.mark.parametrize("bpb", [math.nan, math.inf, None])
def test_rows_without_a_number_do_not_count(bpb: float | None) -> None:
    found = variant("a", [1.1, 1.1001, 1.1002])
    with_bad = replace(found, rows=(*found.rows, RunRow("a", "a", 9, val_bpb=bpb)))
    assert with_bad.mean("final") == pytest.approx(1.1001) and verdict_of(with_bad)[0] == BETTER
    assert verdict_of(Variant("x", "x", (RunRow("x", "x", 1, val_bpb=bpb),))) == (NO_VERDICT, "no run that counts")


@pytest.mark.parametrize("state", ["void", "crashed", "over_bytes", "interrupted"])
def test_runs_that_are_not_ok_do_not_count(state: str) -> None:
    rows = tuple(RunRow("a", "a", seed, state, "why", val_bpb=0.5) for seed in (1, 2, 3))
    assert verdict_of(Variant("a", "a", rows)) == (NO_VERDICT, "no run that counts")


def test_a_variant_that_diverges_at_times_says_so() -> None:
    found = variant("a", [1.1, 1.1001, 1.1002])
    with_bad = replace(found, rows=(*found.rows, RunRow("a", "a", 9, "diverged", "the loss was nan")))
    # Of three others and itself as the worst, four runs are not shown to be better.
    assert verdict_of(with_bad) == (NO_DIFFERENCE, "1 of 4 runs diverged")


@pytest.mark.parametrize(
    "other", [variant("a", [1.1, 1.1001], data="ffff"), variant("a", [1.1, 1.1001], how="sliding window, stride 64")]
)
def test_scores_of_other_texts_or_ways_do_not_compare(other: Variant) -> None:
    found = judge([other], REFERENCE, HOUSE)["a"]
    assert found.kind == NO_VERDICT and "not comparable" in found.reason and found.difference_bpb is None


def test_sliding_scores_of_two_strides_do_not_compare() -> None:
    scores = [1.19, 1.191, 1.192]
    wide, narrow = (
        replace(
            v, rows=tuple(replace(r, sliding_bpb=bpb, sliding_how=how) for r, bpb in zip(v.rows, scores, strict=True))
        )
        for v, how in ((variant("wide", scores), "stride 512"), (variant("narrow", scores), "stride 64"))
    )
    found = judge([narrow], wide, HOUSE, score="sliding")["narrow"]
    assert (found.kind, found.reason) == (NO_VERDICT, "not comparable: scored by stride 64, not stride 512")
    assert judge([narrow], wide, HOUSE, score="final")["narrow"].kind == NO_DIFFERENCE


def test_a_published_score_belongs_to_one_text() -> None:
    one, other = variant("a", [1.1, 1.1001, 1.1002]), variant("b", [1.0, 1.0001, 1.0002], data="ffff")
    assert judge([one], 1.2244, HOUSE)["a"].kind == BETTER
    for found in judge([one, other], 1.2244, HOUSE).values():
        assert found.kind == NO_VERDICT and found.reason.startswith(
            "not comparable: the variants are scored on 2 texts"
        )


def test_seeds_on_two_texts_are_never_averaged() -> None:
    found = variant("a", [1.1, 1.1001, 1.8])
    mixed = replace(found, rows=(*found.rows[:2], replace(found.rows[2], data="ffff")))
    assert mixed.mean("final") is None and mixed.scores("final") == []
    assert verdict_of(mixed) == (NO_VERDICT, "not comparable: its seeds were scored on 2 texts")
    assert judge([mixed], 1.2244, HOUSE)["a"].reason == "not comparable: its seeds were scored on 2 texts"
    against_mixed = judge([REFERENCE], mixed, HOUSE)["reference"]
    assert against_mixed.reason == "not comparable: the reference's seeds were scored on 2 texts"


def _lossy(found: Variant, *states: str) -> Variant:
    lost = tuple(RunRow(found.id, found.id, 10 + i, state, "why") for i, state in enumerate(states))
    return replace(found, rows=(*found.rows, *lost))


def test_lost_runs_are_said_and_many_take_an_improvement_back() -> None:
    good = variant("a", [1.1, 1.1001, 1.1002, 1.1003])
    assert verdict_of(_lossy(good, "over_time", "over_bytes")) == (
        NO_DIFFERENCE, "2 of 6 runs lost (1 over time, 1 over bytes)"
    )  # fmt: skip
    selected = _lossy(good, *["over_time"] * 3)
    assert verdict_of(selected) == (NO_VERDICT, "3 of 7 runs over time, and the rest is a selection")
    assert judge([selected], 1.2244, HOUSE)["a"].kind == NO_VERDICT
    as_lossy = _lossy(REFERENCE, *["over_time"] * 3)
    assert judge([selected], as_lossy, HOUSE)["a"].kind == NO_DIFFERENCE
    worse = _lossy(variant("b", [1.3, 1.3001]), "crashed", "void")
    assert verdict_of(worse) == (WORSE, "2 of 4 runs lost (1 crashed, 1 void)")
    # A reference with many losses is the lucky part of its runs, and so is what is worse than it alone.
    good_luck = "of the reference 3 of 6 runs over time, and the rest is a selection"
    found = judge([variant("b", [1.3, 1.3001])], as_lossy, HOUSE)
    assert (found["b"].kind, found["b"].reason) == (NO_VERDICT, good_luck)
    findings = judged(Study("x", (as_lossy, variant("b", [1.3, 1.3001])), as_lossy), HOUSE)
    assert findings.best is not None and findings.best.id == "b"
    assert findings.ranking.tied == findings.ranking.tested == set()
    unreadable = _lossy(good, *["unreadable"] * 5)
    assert verdict_of(unreadable) == (NO_VERDICT, "5 of 9 runs unreadable, and the rest is a selection")
    open_runs = _lossy(good, "over_time", "waiting", "unfinished", "interrupted")
    assert verdict_of(open_runs) == (NO_DIFFERENCE, "1 of 8 runs over time")


def test_a_machine_for_each_variant_gives_no_verdict() -> None:
    here = replace(REFERENCE, rows=tuple(replace(r, machine="8× A100") for r in REFERENCE.rows))
    there = variant("a", [1.1, 1.1001, 1.1002], machine="8× H100")
    found = judge([there], here, HOUSE)["a"]
    assert found.kind == NO_VERDICT and found.difference_bpb is not None
    assert found.reason == f"its runs are from 8× H100, the reference's from 8× A100: {MACHINE_MAY_BE}"
    spread = replace(there, rows=(replace(there.rows[0], machine="8× A100"), *there.rows[1:]))
    assert judge([spread], here, HOUSE)["a"].kind == BETTER
    slow = replace(there, rows=tuple(replace(r, machine="8× A100", slowdown=1.35) for r in there.rows))
    assert "8× A100, slow" in judge([slow], here, HOUSE)["a"].reason


def test_the_best_has_two_seeds_where_a_variant_has() -> None:
    lucky, good, bad = variant("lucky", [1.0]), variant("good", [1.1, 1.1001]), variant("bad", [1.2, 1.2001])
    found = ranking([lucky, good, bad], HOUSE, {}, None)
    assert found.best is good and found.tied == set() and found.tested == {"bad"}
    assert ranking([lucky], HOUSE, {}, None).best is lucky


def test_a_rank_says_what_the_verdict_says() -> None:
    """With a given standard deviation one seed is tested, and the reference that it beats is not the best."""
    many = variant("reference", [1.22 + 0.0001 * (i % 7) for i in range(30)])
    lucky = variant("lucky", [1.2151])
    findings = judged(Study("x", (many, lucky), many), HOUSE, sigma=0.0007)
    assert findings.verdicts["lucky"].kind == BETTER
    assert findings.best is lucky and findings.ranking.tied == set()
    void = replace(many, rows=tuple(replace(row, state="void") for row in many.rows))
    assert judge([REFERENCE], void, HOUSE)["reference"].reason == "the reference has no run that counts"


def test_seeds_with_equal_scores_count_once() -> None:
    """Three copies of a run are one run: their spread of zero would show anything."""
    rows = tuple(replace(row, pre_quant_bpb=1.2, post_quant_bpb=1.2190) for row in variant("a", [1.2190] * 3).rows)
    copied = Variant("a", "a", rows)
    assert verdict_of(copied) == (NO_VERDICT, "one seed") and copied.scores("final") == [1.2190]
    study = Study("x", (copied, REFERENCE), REFERENCE)
    text = "\n".join(remarks_on(judged(study, HOUSE)))
    assert "a: seed 2 scored as seed 1 to the last digit" in text and "seed 3 scored as seed 1" in text
    # Imported scores are rounded, so that equal ones are no copies.
    imported = Variant("a", "a", tuple(replace(row, source="imported") for row in rows))
    assert len(imported.counted) == 3


def test_a_log_from_elsewhere_that_was_cut_off_is_not_to_come() -> None:
    """It once counted as one more comparison, so that importing it changed the verdicts of own runs."""
    own = variant("a", [1.2271, 1.2269, 1.2268])
    cut_off = Variant("log", "log", (RunRow("log", "log", 1, UNFINISHED, source=IMPORTED),))
    alone = judged(Study("x", (own, REFERENCE), REFERENCE), HOUSE)
    beside = judged(Study("x", (own, REFERENCE, cut_off), REFERENCE), HOUSE)
    assert beside.verdicts["a"] == alone.verdicts["a"]
    assert "to come" not in "".join(remarks_on(beside)) and "may change" not in "".join(remarks_on(beside))
    # A run of one's own is.
    waiting = replace(cut_off, rows=(replace(cut_off.rows[0], source=OWN),))
    corrected = judged(Study("x", (own, REFERENCE, waiting), REFERENCE), HOUSE).verdicts["a"].p
    assert corrected is not None and (alone.verdicts["a"].p or 1) < corrected


def test_other_versions_of_the_code_are_named() -> None:
    def remarks(*codes: str | None) -> str:
        rows = [replace(row, code=code) for row, code in zip(REFERENCE.rows, codes, strict=True)]
        study = Study("x", (variant("a", [1.2, 1.21], code="aaaa"), replace(REFERENCE, rows=tuple(rows))), None)
        return "\n".join(remarks_on(judged(study, HOUSE)))

    assert "code" not in remarks("aaaa", "aaaa", None)
    assert "The code that ran is aaaa, bbbb: a difference" in remarks("bbbb", "bbbb", "bbbb")
    assert "is aaaa, bbbb, mixed within reference: a difference" in remarks("bbbb", "aaaa", "bbbb")
    edited = Study("x", (variant("a", [1.2, 1.21], code="aaaa (edited)"),), None)
    assert "The code that ran is aaaa (edited): a difference" in "\n".join(remarks_on(judged(edited, HOUSE)))


@pytest.mark.parametrize(
    ("digests", "differs"),
    [
        (["0d", "0d"], False),
        (["0d", "1d"], True),
        (["0d", None], True),
        (["an earlier version"] * 2, True),
        (["0d, then 1d"] * 2, True),
    ],
)
def test_commits_that_differ_in_no_file_of_a_run_are_not_named(digests: list[str | None], differs: bool) -> None:
    """An edit of a page between two runs does not explain what they differ by."""
    rows = [replace(row, code_digest=digest) for row, digest in zip(REFERENCE.rows, digests, strict=False)]
    rows = [replace(row, code="aaaa" if i else "aaaa (edited)") for i, row in enumerate(rows)]
    study = Study("x", (replace(REFERENCE, rows=tuple(rows)),), None)
    assert ("The code that ran" in "\n".join(remarks_on(judged(study, HOUSE)))) is differs


def test_unfinished_variants_are_counted_in_the_family() -> None:
    tried = variant("a", [1.2270, 1.2268, 1.2281])
    waiting = [Variant(f"w{i}", "w", (RunRow("w", "w", 1, "waiting"),)) for i in range(4)]
    alone = judge([tried], REFERENCE, HOUSE)["a"]
    halfway = judge([tried, *waiting], REFERENCE, HOUSE)["a"]
    assert alone.p is not None and halfway.p == pytest.approx(5 * alone.p)
    assert (alone.family, halfway.family) == (1, 5)


def test_only_the_same_checkpoint_makes_a_pair() -> None:
    before = [1.21, 1.22, 1.25]
    one_way, other = variant("a", [x + 0.005 for x in before]), variant("b", [1.2144, 1.2243, 1.2546])
    trained_once = [replace(v, rows=_with(v, before)) for v in (one_way, other)]
    found = compare(trained_once[1], trained_once[0])
    assert found.test == "paired" and found.p_below() < 0.02
    assert compare(other, one_way).test == "Welch" and compare(other, one_way).p_below() > 0.4
    retrained = [trained_once[0], replace(other, rows=_with(other, [1.2101, 1.22, 1.25]))]
    assert compare(retrained[1], retrained[0]).test == "Welch"
    fewer = replace(trained_once[1], rows=trained_once[1].rows[:2])
    assert compare(fewer, trained_once[0]).test == "Welch"


def _with(variant: Variant, before: list[float]) -> tuple[RunRow, ...]:
    return tuple(replace(row, pre_quant_bpb=bpb) for row, bpb in zip(variant.rows, before, strict=True))


def test_against_a_published_number() -> None:
    ours = variant("a", [1.2230, 1.2238, 1.2225])
    found = judge([ours], 1.2286, HOUSE)["a"]
    assert found.kind == BETTER and found.comparison is not None and found.comparison.test == "one-sample"
    assert judge([variant("a", [1.2230])], 1.2244, AT_ONE_PERCENT, sigma=0.0007)["a"].kind == NO_DIFFERENCE
