"""Sequential verdicts: levels against scipy's multivariate normal, decisions that later data cannot change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal, norm

from bench.simulation import Setting, simulate
from golf.lab.report.boundaries import nominal_levels, repeated_p
from golf.lab.report.rows import UNFINISHED, RunRow
from golf.lab.report.sequential import FUTILE, SequentialPlan, SequentialVerdicts, judge_sequentially
from golf.lab.report.statistics import PAIRED, welch
from golf.lab.report.variants import Variant
from golf.lab.report.verdicts import BETTER, NO_VERDICT, WORSE
from golf.run.result import DIVERGED
from golf.settings.composition import rules_named
from golf.settings.config import RulesConfig

SD = 0.0007
HOUSE = rules_named("house")


def variant(name: str, scores: list[float], **changes: object) -> Variant:
    fields = {"bytes_per_token": 2.43593, "data": "text", **changes}
    rows = (RunRow(name, name, seed, val_bpb=bpb, **fields) for seed, bpb in enumerate(scores, start=1))  # type: ignore[arg-type]
    return Variant(name, name, tuple(rows))


def judged(arms: dict[str, list[float]], looks: int = 6, rules: RulesConfig = HOUSE) -> SequentialVerdicts:
    variants = [variant(name, scores) for name, scores in arms.items()]
    plan = SequentialPlan(tuple(range(1, looks + 1)), variants[0].id)
    return judge_sequentially(variants, variants[0], rules, plan)


def around(mean: float, count: int, seed: int) -> list[float]:
    return list(mean + SD * np.random.default_rng(seed).standard_normal(count))


@pytest.mark.parametrize(("looks", "first"), [(1, 1), (2, 1), (3, 1), (3, 2), (4, 1)])
def test_levels_spend_the_error_evenly_over_the_looks(looks: int, first: int) -> None:
    bounds = norm.isf(nominal_levels(0.05, looks, first)[first - 1 :])
    times = np.arange(first, looks + 1)
    correlation = np.sqrt(np.minimum.outer(times, times) / np.maximum.outer(times, times))
    for taken in range(1, len(times) + 1):
        inside = multivariate_normal(np.zeros(taken), correlation[:taken, :taken]).cdf(bounds[:taken])
        assert 1 - inside == pytest.approx(0.05 * times[taken - 1] / looks, rel=2e-3)


def test_levels_of_many_looks_hold_in_a_simulation() -> None:
    sums = np.random.default_rng(1).standard_normal((40_000, 30)).cumsum(axis=1) / np.sqrt(np.arange(1, 31))
    crossed = (sums > norm.isf(nominal_levels(0.05, 30))).any(axis=1).mean()
    assert crossed == pytest.approx(0.05, abs=0.004)


@given(p=st.lists(st.floats(1e-5, 0.4), min_size=5, max_size=5), level=st.sampled_from([0.001, 0.01, 0.05, 0.2]))
@settings(max_examples=30, deadline=None)
def test_the_repeated_p_is_the_level_at_which_a_look_crosses(p: list[float], level: float) -> None:
    found = repeated_p(tuple(p), 5)
    crosses = any(a < b for a, b in zip(p, nominal_levels(level, 5), strict=True))
    # The grid of levels has steps of 5 %.
    assert crosses if found < level / 1.06 else True
    assert not crosses if found > level * 1.06 else True


def test_variants_leave_when_better_worse_or_futile() -> None:
    done = judged(
        {
            "reference": around(1.1, 6, 1),
            "better": around(1.1 - 12 * SD, 6, 2),
            "worse": around(1.1 + 12 * SD, 6, 7),
            "equal": around(1.1 + 0.4 * SD, 6, 4),
        },
    )
    kinds = {id: verdict.kind for id, verdict in done.verdicts.items()}
    assert kinds == {"better": BETTER, "worse": WORSE, "equal": FUTILE}
    assert not done.active
    assert done.looks < 6, "nobody was left to wait for"
    better = done.verdicts["better"]
    assert better.p is not None and better.p < HOUSE.alpha
    assert better.family == 3
    assert "of at most 6" in better.reason


@given(seed=st.integers(0, 10_000), gain=st.sampled_from([0.0, 2.0, 5.0]))
@settings(max_examples=25, deadline=None)
def test_later_rounds_change_no_decision(seed: int, gain: float) -> None:
    arms = {name: around(1.1 - gain * SD * (name == "a"), 6, 10 * seed + i) for i, name in enumerate("rab")}
    decided: dict[str, tuple[str, float | None]] = {}
    for rounds in range(1, 7):
        done = judged({name: scores[:rounds] for name, scores in arms.items()})
        now = {id: (v.kind, v.difference_bpb) for id, v in done.verdicts.items() if id not in done.active}
        assert now.items() >= decided.items()
        decided = now
    assert set(decided) == {"a", "b"}


def test_a_round_that_is_not_complete_is_not_looked_at() -> None:
    a, b = variant("a", around(1.1, 4, 1)), variant("b", around(1.09, 3, 2))
    running = Variant("b", "b", (*b.rows, RunRow("b", "b", 4, UNFINISHED)))
    plan = SequentialPlan((1, 2, 3, 4), "a")
    rules = HOUSE
    assert judge_sequentially([a, running], a, rules, plan).looks <= 3
    first = Variant("b", "b", (RunRow("b", "b", 1, UNFINISHED),))
    done = judge_sequentially([a, first], a, rules, plan)
    assert done.looks == 0
    assert done.active == ["b"]
    assert done.verdicts["b"].kind == NO_VERDICT


def test_intervals_hold_at_every_look_and_are_wider_than_those_of_one_look() -> None:
    reference, other = around(1.1, 6, 5), around(1.1, 6, 6)
    done = judged({"reference": reference, "other": other})
    comparison = done.verdicts["other"].comparison
    assert comparison is not None
    one_look = welch(other[: done.looks], reference[: done.looks]).interval(0.9)
    low, high = comparison.interval(0.9)
    assert low < one_look[0] < one_look[1] < high


def test_a_variant_that_loses_its_runs_leaves_without_a_verdict() -> None:
    reference = variant("reference", around(1.1, 4, 1))
    crashed = Variant("x", "x", tuple(RunRow("x", "x", seed, "diverged") for seed in (1, 2, 3, 4)))
    done = judge_sequentially([reference, crashed], reference, HOUSE, SequentialPlan((1, 2, 3, 4), "reference"))
    assert done.verdicts["x"].kind == NO_VERDICT
    assert "2 of 2 runs diverged" in done.verdicts["x"].reason
    assert done.looks == 2


def test_a_reference_without_a_run_that_counts_ends_the_sweep() -> None:
    lost = variant("a", [9.0, 9.0, 9.0], state=DIVERGED)
    plan = SequentialPlan((1, 2, 3, 4), "a")
    done = judge_sequentially([lost, variant("b", [1.1, 1.1001, 1.1])], lost, HOUSE, plan)
    assert done.looks == 2 and not done.active and done.verdicts["b"].kind == NO_VERDICT


def test_another_text_leaves_at_once() -> None:
    reference, other = variant("a", [1.1, 1.1001]), variant("b", [1.0, 1.0001], data="another")
    done = judge_sequentially([reference, other], reference, HOUSE, SequentialPlan((1, 2, 3), "a"))
    assert not done.active
    assert "not comparable" in done.verdicts["b"].reason
    # Data that changed between two rounds are two texts, of which there is no mean.
    rows = tuple(replace(row, data=f"text {row.seed}") for row in variant("b", [1.0, 1.0001]).rows)
    done = judge_sequentially([reference, replace(other, rows=rows)], reference, HOUSE, SequentialPlan((1, 2, 3), "a"))
    assert not done.active and "its seeds were scored on 2 texts" in done.verdicts["b"].reason


def test_one_seed_of_each_decides_nothing() -> None:
    done = judged({"reference": [1.1], "better": [1.0]})
    assert done.looks == 1
    assert done.active == ["better"]


def test_pairs_have_one_degree_of_freedom_less_at_the_small_levels_of_looks() -> None:
    before = [1.1, 1.2, 1.15]
    mine, other = (
        Variant(id, id, tuple(replace(r, pre_quant_bpb=b) for r, b in zip(variant(id, s).rows, before, strict=True)))
        for id, s in (("b", [1.101, 1.2012, 1.1511]), ("a", [1.1003, 1.2001, 1.1502]))
    )
    done = judge_sequentially([other, mine], other, HOUSE, SequentialPlan((1, 2, 3), "a"))
    found = done.verdicts["b"].comparison
    assert found is not None and (found.test, found.df) == (PAIRED, 1)


def test_a_variant_that_never_shares_a_machine_leaves_after_three_rounds() -> None:
    seeds = (1, 2, 3, 4, 5)
    mine, other = (
        Variant(id, id, tuple(replace(row, host=id) for row in variant(id, around(1.1, 5, n)).rows))
        for n, id in enumerate("ab")
    )
    done = judge_sequentially([mine, other], mine, HOUSE, SequentialPlan(seeds, "a"))
    assert done.verdicts["b"].kind == NO_VERDICT and "the machine may be the cause" in done.verdicts["b"].reason
    assert not done.active and done.looks == 3


@pytest.mark.slow
@pytest.mark.parametrize(("variants", "looks"), [(2, 10), (2, 5), (3, 10)])
def test_pairs_keep_the_level(variants: int, looks: int) -> None:
    equal = Setting("pairs", variants, 0.0, pairs=True, looks=looks)
    # 0.06 to 0.07 without the degree of freedom; the standard error is 0.005.
    assert simulate(equal, HOUSE, 2000, np.random.default_rng(3)).false_better < 0.056


def test_the_spread_of_the_sweep_ends_hopeless_variants_and_stops_a_lucky_agreement() -> None:
    quiet = {"reference": [1.1000, 1.1004, 1.0998, 1.1002]}
    # Two seeds of one variant agree by luck, so that Welch's test takes a difference of chance for a real one.
    lucky = {"lucky": [1.1030, 1.10301], "a": [1.09, 1.11], "b": [1.108, 1.091], "c": [1.092, 1.107]}
    plan = SequentialPlan((1, 2, 3, 4), "reference")
    variants = [variant(name, scores[:2]) for name, scores in {**quiet, **lucky}.items()]
    done = judge_sequentially(variants, variants[0], HOUSE, plan)
    found = done.verdicts["lucky"]
    by_welch = 4 * repeated_p((1.0, welch(lucky["lucky"], quiet["reference"][:2]).p_above()), 4, 2)
    assert by_welch < 0.3 and found.p == 1.0
    # With an effect that is large beside the spread of all, the two seeds of each are enough to give it up.
    plan = SequentialPlan((1, 2, 3, 4), "reference", effect_bpb=0.1)
    assert {v.kind for v in judge_sequentially(variants, variants[0], HOUSE, plan).verdicts.values()} == {FUTILE}
