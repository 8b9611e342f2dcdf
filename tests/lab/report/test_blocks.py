"""Blocks: variants that are compared by all runs of their sweep, with terms for what the runs of a seed share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_ind

from bench.designs import OF_FIXED_SIZE, SETTINGS
from bench.simulation import Setting, fixed_false_better, simulate
from golf.lab.report.blocks import POOLED, Blocks
from golf.lab.report.findings import judged
from golf.lab.report.machines import MACHINE, SEED, Fit, term_label
from golf.lab.report.remarks import remarks_on
from golf.lab.report.rows import IMPORTED
from golf.lab.report.sequential import SequentialPlan, judge_sequentially
from golf.lab.report.statistics import WELCH, welch
from golf.lab.report.study import Study
from golf.lab.report.variants import Variant
from golf.lab.report.verdicts import BETTER, judge
from golf.settings.config import RulesConfig
from tests.lab.report.runs import variant

HOUSE = RulesConfig()
SD = 0.0007


def drawn(count: int, seeds: int, shared: float, seed: int = 1) -> list[Variant]:
    """Return variants a, b, … whose runs of a seed have `shared` of the noise's standard deviation in common."""
    rng = np.random.default_rng(seed)
    scores = 1.2 + SD * (rng.standard_normal((count, seeds)) + shared * rng.standard_normal(seeds))
    return [variant(name, row.tolist()) for name, row in zip("abcdefghijkl", scores, strict=False)]


def fit_of(variants: list[Variant], number: int = 1) -> Fit:
    found = Blocks(variants, "final").compare(variants[number], variants[0])
    assert found is not None
    return found


def test_a_complete_sweep_is_a_two_way_table() -> None:
    variants = drawn(4, 5, shared=8.0)
    y = np.array([v.scores("final") for v in variants])
    rest = y - y.mean(0) - y.mean(1, keepdims=True) + y.mean()
    found = fit_of(variants)
    assert (found.test, found.sd_df, found.arms) == (term_label([SEED]), 3 * 4, 4)
    assert found.sd == pytest.approx(np.sqrt((rest**2).sum() / 12))
    assert found.difference == pytest.approx(y[1].mean() - y[0].mean())
    assert found.of_residuals.standard_error == pytest.approx(found.sd * np.sqrt(2 / 5))
    within = y.var(1, ddof=1).mean()
    assert found.shared == pytest.approx(1 - found.sd**2 / within) and found.shared > 0.9
    without = fit_of(drawn(4, 5, shared=0.0))
    assert (without.test, without.sd_df) == (POOLED, 4 * 4)


def test_a_variant_with_other_seeds_is_compared_beside_what_the_seeds_share() -> None:
    """Seeds 1 to 3 against 3 to 5: means would contain the seeds, the fit does not."""
    variants = drawn(4, 5, shared=30.0)
    ours = [replace(v, rows=v.rows[:3] if n == 1 else v.rows[2:] if n == 0 else v.rows) for n, v in enumerate(variants)]
    rows = [(n, row.seed, row.val_bpb) for n, v in enumerate(ours) for row in v.rows]
    design = [[n == k for k in range(4)] + [seed == k for k in range(2, 6)] for n, seed, _ in rows]
    expected = np.linalg.lstsq(np.array(design, dtype=float), np.array([bpb for *_, bpb in rows]), rcond=None)[0]
    found = fit_of(ours)
    assert found.test == term_label([SEED]) and found.difference == pytest.approx(expected[1] - expected[0])
    raw = np.mean(ours[1].scores("final")) - np.mean(ours[0].scores("final"))
    assert abs(raw - found.difference) > 5 * found.standard_error
    # Two variants without a seed in common have no such fit.
    alone = [replace(v, rows=rows) for v, rows in zip(ours[:2], (ours[0].rows[1:], ours[1].rows[:2]), strict=True)]
    assert Blocks(alone, "final").compare(alone[1], alone[0]) is None


@given(st.integers(0, 10**6), st.lists(st.floats(-0.1, 0.1), min_size=5, max_size=5))
@settings(max_examples=40, deadline=None)
def test_what_seeds_and_machines_add_changes_no_fit(seed: int, added: list[float]) -> None:
    variants = drawn(4, 5, 30.0, seed)

    def shifted(n: int, v: Variant) -> Variant:
        # Each machine runs each variant, in another order.
        rows = (replace(r, host=f"m{(n + k) % 5}", val_bpb=r.val_bpb or 0.0) for k, r in enumerate(v.rows))
        return replace(v, rows=tuple(rows))

    hosted = [shifted(n, v) for n, v in enumerate(variants)]
    moved = [
        replace(
            v,
            rows=tuple(
                replace(r, val_bpb=(r.val_bpb or 0.0) + added[k] + added[(n + k) % 5]) for k, r in enumerate(v.rows)
            ),
        )
        for n, v in enumerate(hosted)
    ]
    one, other = fit_of(hosted), fit_of(moved)
    # Two that both stand out are compared alone, where seeds and machines leave nothing.
    assume(one.test == term_label([SEED, MACHINE]))
    assert one.difference == pytest.approx(other.difference, abs=1e-9)
    assert one.sd == pytest.approx(other.sd, abs=1e-9)


def test_a_noisy_reference_has_a_noise_of_its_own() -> None:
    variants = drawn(6, 5, shared=0.0, seed=3)
    mean = float(np.mean(variants[0].scores("final")))
    noisy = variant("a", [mean + 40 * (bpb - mean) for bpb in variants[0].scores("final")])
    found = fit_of([noisy, *variants[1:]])
    of_reference = np.std(noisy.scores("final"), ddof=1) / np.sqrt(5)
    # The others tell theirs together, and the reference's decides.
    assert found.standard_error == pytest.approx(of_reference, rel=0.01)
    assert found.df == pytest.approx(4, rel=0.01)
    assert found.of_residuals.df == 6 * 4
    # Where the variant stands out as well, the two are compared alone.
    other = variant("b", [1.2 + 35 * (bpb - 1.2) for bpb in variants[1].scores("final")])
    both = judge([noisy, other, *variants[2:]], noisy, HOUSE)["b"].comparison
    alone = welch(other.scores("final"), noisy.scores("final"))
    assert both is not None and both.test == WELCH and both == alone


def test_one_wild_variant_hides_nothing_of_the_others() -> None:
    variants = drawn(4, 4, shared=0.0)
    wild = variant("wild", [1.25, 1.31, 1.22, 1.29])
    assert fit_of([*variants, wild]).sd == fit_of(variants).sd
    kinds = judge([*variants, wild], variants[0], HOUSE)
    assert kinds["b"].comparison == judge(variants, variants[0], HOUSE)["b"].comparison


def test_two_variants_that_share_nothing_are_compared_by_welchs_test_and_imported_runs_always() -> None:
    one, other = drawn(2, 5, shared=0.0)
    assert judge([one, other], one, HOUSE)["b"].comparison == welch(other.scores("final"), one.scores("final"))
    near = drawn(2, 5, shared=30.0)
    paired = judge(near, near[0], HOUSE)["b"].comparison
    assert isinstance(paired, Fit) and paired.df == 4
    foreign = [replace(v, rows=tuple(replace(r, source=IMPORTED) for r in v.rows)) for v in drawn(4, 5, 30.0)]
    tests = {v.comparison.test for v in judge(foreign, foreign[0], HOUSE).values() if v.comparison}
    assert tests == {WELCH}
    # A learning rate that trains alike in every seed tells no noise: Student's test has it from all.
    a, b, c = drawn(3, 4, shared=0.0)
    found = fit_of([a, b, c], 2)
    assert found.sd_df == 9 and found.test == POOLED and np.isfinite(ttest_ind(*(v.scores("final") for v in (a, c)))[1])


def test_a_table_says_what_seeds_share_and_finds_what_welch_does_not() -> None:
    rng = np.random.default_rng(4)
    of_seed = 0.009 * rng.standard_normal(4)
    arms = {"a": 0.0, "b": -0.006, "c": 0.0, "d": 0.001}
    variants = [
        variant(n, (1.6 + gain + of_seed + 0.0009 * rng.standard_normal(4)).tolist()) for n, gain in arms.items()
    ]
    findings = judged(Study("lr", tuple(variants), variants[0]), HOUSE)
    assert findings.verdicts["b"].kind == BETTER
    assert welch(variants[1].scores("final"), variants[0].scores("final")).p_below() > 0.05
    text = "\n".join(remarks_on(findings))
    assert "Runs of one seed move together (r = 0.9" in text
    assert "Beside what a seed's runs share seeds scatter by 0.00" in text and "(least squares by seed test" in text


def test_a_wild_row_is_named_beside_what_the_others_find() -> None:
    """One sentence once gave the noise of the sweep together with the difference that its wildest row takes."""
    variants = [*drawn(4, 4, shared=0.0), variant("wild", [1.2 + 8 * SD * z for z in (1, -1, 0.5, -0.5)])]
    (said,) = [s for s in remarks_on(judged(Study("lr", tuple(variants), variants[0]), HOUSE)) if "Seeds scatter" in s]
    typical, wild = (
        float(part.split(" bpb")[0]) for part in (said.split("improvement of ")[1], said.split("takes ")[1])
    )
    assert "For wild it takes" in said and typical < 5 * SD < wild
    calm = judged(Study("lr", tuple(variants[:4]), variants[0]), HOUSE)
    assert not any("it takes" in s for s in remarks_on(calm))


def test_a_sweep_in_rounds_with_shared_seeds_stops_early() -> None:
    setting = Setting("r = 0.8", 6, 2.0, effect_sd=2.0, shared_r=0.8)
    done = simulate(setting, HOUSE, 60, np.random.default_rng(3))
    # By Welch's test 23.7 of 60 runs, and all six take two rounds at least.
    assert done.found > 0.8 and 12 <= done.runs < 17.5


def test_variants_that_left_still_tell_the_noise() -> None:
    variants = drawn(5, 6, shared=0.0, seed=37)
    better = replace(variants[1], rows=tuple(replace(r, val_bpb=(r.val_bpb or 0) - 3 * SD) for r in variants[1].rows))
    plan = SequentialPlan(tuple(range(1, 7)), "a", effect_bpb=6 * SD)
    done = judge_sequentially([variants[0], better, *variants[2:]], variants[0], HOUSE, plan)
    looks = {id: int(v.reason.split("look ")[1][0]) for id, v in done.verdicts.items()}
    found = done.verdicts["b"].comparison
    assert found is not None and looks["b"] == 3 and looks["c"] == looks["d"] == looks["e"] == 2
    # Two variants of three seeds have four degrees of freedom, three of two have three more.
    assert found.test == POOLED and found.df == 7


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting",
    [s for s in (*SETTINGS, *OF_FIXED_SIZE) if not s.gain_sd and s.variants == 6 and not s.layout and not s.pairs],
    ids=lambda s: s.name,
)
def test_sweeps_of_six_keep_the_level(setting: Setting) -> None:
    """A reference three times as noisy errs in 0.14 without a look at its own noise."""
    count, rng = 700, np.random.default_rng(8)
    level = fixed_false_better if setting in OF_FIXED_SIZE else lambda *a: simulate(*a).false_better
    # Three standard errors of 0.055 in 700 are 0.026.
    assert level(setting, HOUSE, count, rng) < 0.055 + 0.026
