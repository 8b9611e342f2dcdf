"""Lost runs count as the worst: a variant is not better because its bad seeds did not finish."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from golf.lab.report.findings import judged
from golf.lab.report.losses import counts_losses, p_better
from golf.lab.report.remarks import remarks_on
from golf.lab.report.rows import RunRow
from golf.lab.report.sequential import SequentialPlan, judge_sequentially
from golf.lab.report.statistics import PAIRED, rank_sum_p, signed_rank_p, welch
from golf.lab.report.study import Study
from golf.lab.report.variants import Variant
from golf.lab.report.verdicts import BETTER, NO_DIFFERENCE, WORSE, judge, ranking
from golf.settings.config import RulesConfig
from tests.lab.report.runs import variant

HOUSE, SD = RulesConfig(), 0.0007
SENTENCE = "p counts lost runs as the worst, by an exact test of ranks; means and intervals are of the rest."


def losing(found: Variant, count: int, state: str = "diverged") -> Variant:
    lost = (RunRow(found.id, found.id, 100 + k, state) for k in range(count))
    return replace(found, rows=(*found.rows, *lost))


def around(name: str, mean: float, count: int, seed: int) -> Variant:
    return variant(name, (mean + SD * np.random.default_rng(seed).standard_normal(count)).tolist())


@given(st.lists(st.integers(0, 6), min_size=2, max_size=5), st.lists(st.integers(0, 6), min_size=2, max_size=5))
@settings(max_examples=25, deadline=None)
def test_the_rank_sum_is_that_of_all_permutations(lower: list[int], higher: list[int]) -> None:
    def rank_sum(x: np.ndarray, y: np.ndarray) -> float:
        return float(stats.rankdata([*x, *y])[: len(x)].sum())

    exact = stats.permutation_test((lower, higher), rank_sum, alternative="less", n_resamples=np.inf, vectorized=False)
    assert rank_sum_p(lower, higher) == pytest.approx(exact.pvalue)


def test_ranks_without_ties_are_scipys_and_the_lost_are_last() -> None:
    a, b = [1.1, 1.2, 1.35], [1.3, 1.4, 1.5, 1.6]
    assert rank_sum_p(a, b) == pytest.approx(stats.mannwhitneyu(a, b, alternative="less", method="exact").pvalue)
    assert rank_sum_p([*a, math.inf, math.inf], b) == rank_sum_p([*a, 7.0, 7.0], b)
    differences = [-0.3, -0.2, 0.1, -0.4, -0.6]
    exact = stats.wilcoxon(differences, alternative="less", method="exact").pvalue
    assert signed_rank_p(differences) == pytest.approx(exact)


def test_lost_runs_can_only_raise_p() -> None:
    mine, reference = around("a", 1.0986, 6, 1), around("b", 1.1, 6, 2)
    comparison = welch(mine.scores("final"), reference.scores("final"))
    p = [p_better(comparison, losing(mine, lost), reference, "final") for lost in range(4)]
    assert p[0] == comparison.p_below() and p == sorted(p) and p[2] > 0.05
    ranks = rank_sum_p([*mine.scores("final"), math.inf], reference.scores("final"))
    assert p[1] == max(p[0], ranks)
    # A margin moves the variant's scores, and a published score has the signs of the differences.
    far = [bpb + 0.002 for bpb in mine.scores("final")]
    assert p_better(comparison, losing(mine, 1), reference, "final", 0.002) == pytest.approx(
        max(comparison.p_below(-0.002), rank_sum_p([*far, math.inf], reference.scores("final")))
    )
    below = [bpb - 1.2 for bpb in mine.scores("final")]
    signed = stats.wilcoxon([*below, 9.0], alternative="less", method="exact").pvalue
    assert p_better(comparison, losing(mine, 1), 1.2, "final") == pytest.approx(max(p[0], signed))
    assert not counts_losses(replace(comparison, test=PAIRED), losing(mine, 1))


def test_two_lost_of_six_leave_no_improvement_and_no_deterioration() -> None:
    good, reference = around("a", 1.0979, 4, 3), around("b", 1.1, 6, 4)
    assert judge([good], reference, HOUSE)["a"].kind == BETTER
    found = judge([losing(good, 2)], reference, HOUSE)["a"]
    assert (found.kind, found.reason) == (NO_DIFFERENCE, "2 of 6 runs diverged") and found.p is not None
    assert found.p == rank_sum_p([*good.scores("final"), math.inf, math.inf], reference.scores("final"))
    bad, few = around("a", 1.1021, 6, 5), around("b", 1.1, 4, 6)
    assert judge([bad], few, HOUSE)["a"].kind == WORSE
    assert judge([bad], losing(few, 2), HOUSE)["a"].kind == NO_DIFFERENCE
    assert judge([losing(bad, 2)], few, HOUSE)["a"].kind == WORSE
    # What the verdict leaves open, the rank does not decide.
    assert ranking([bad, losing(few, 2)], HOUSE, {}, None).tied == {"a"}
    # One of many lost takes a clear improvement back from nobody.
    many, others = around("a", 1.0979, 9, 7), around("b", 1.1, 10, 8)
    assert judge([losing(many, 1)], others, HOUSE)["a"].kind == BETTER


def test_a_table_says_that_lost_runs_count() -> None:
    mine, reference = around("a", 1.0979, 5, 1), around("b", 1.1, 6, 2)
    for shown, says in ((losing(mine, 1), True), (mine, False)):
        study = Study("x", (reference, shown), reference)
        assert (SENTENCE in remarks_on(judged(study, HOUSE))) == says
    study = Study("x", (losing(reference, 1), mine), None)
    assert SENTENCE in remarks_on(judged(replace(study, reference=study.variants[0]), HOUSE))


def wrong(is_variant: bool, sweeps: int) -> float:
    """Return how often six seeds of equal variants, of which one loses its worst, differ falsely in its favour."""
    rng, found = np.random.default_rng(9), 0
    for _ in range(sweeps):
        scores = 1.1 + SD * rng.standard_normal((2, 6))
        kept = scores[0][scores[0] < 1.1 + 0.524 * SD].tolist()  # 30 % lie above
        mine, other = losing(variant("a", kept), 6 - len(kept)), variant("b", scores[1].tolist())
        if is_variant:
            found += judge([mine], other, HOUSE)["a"].kind == BETTER
        else:
            found += judge([other], mine, HOUSE)["b"].kind == WORSE
    return found / sweeps


@pytest.mark.parametrize("is_variant", [True, False])
def test_losing_the_worst_runs_keeps_the_level(is_variant: bool) -> None:
    # 0.15 without the ranks; three standard errors of 0.05 in 600 are 0.027.
    assert wrong(is_variant, 600) < 0.05 + 0.027


def test_a_sweep_in_rounds_counts_its_lost_runs_too() -> None:
    reference, mine = around("b", 1.1, 6, 4), around("a", 1.0972, 6, 3)
    plan = SequentialPlan((1, 2, 3, 4, 5, 6), "b", effect_bpb=0.0001)
    assert judge_sequentially([reference, mine], reference, HOUSE, plan).verdicts["a"].kind == BETTER
    rows = tuple(replace(r, state="diverged", val_bpb=None) if r.seed in (3, 5) else r for r in mine.rows)
    assert (
        judge_sequentially([reference, replace(mine, rows=rows)], reference, HOUSE, plan).verdicts["a"].kind != BETTER
    )
