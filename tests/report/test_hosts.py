"""Machines of one kind: seeds that hide the machine's share of the noise are compared with a term for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from golf.report.findings import judged
from golf.report.remarks import remarks_on
from golf.report.results import result_row
from golf.report.statistics import MACHINE_TERM
from golf.report.study import read_study
from golf.report.variants import Variant
from golf.report.verdicts import BETTER, NO_VERDICT, judge
from golf.settings.config import RulesConfig
from tests.report.runs import variant, with_lr, write_run, write_sweep

HOUSE = RulesConfig()
SD, MACHINE_SD = 0.0007, 0.00085  # between seeds and between machines of one kind (docs/verdicts.md)


def on(found: Variant, hosts: Sequence[str | None]) -> Variant:
    return replace(found, rows=tuple(replace(r, host=h) for r, h in zip(found.rows, hosts, strict=True)))


REFERENCE = variant("reference", [1.2286, 1.2279, 1.2291, 1.2283])
GOOD = variant("a", [1.1, 1.1001, 1.1002])


@pytest.mark.parametrize(
    ("mine", "other", "test"),
    [
        (["n1"] * 3, ["n1"] * 4, "Welch"),
        (["n1", "n2", "n1"], ["n3", "n4", "n3", "n4"], "Welch"),
        ([None] * 3, ["n2"] * 4, "Welch"),
        (["n1", None, "n1"], ["n2"] * 4, ""),
        (["n1"] * 3, ["n2", None, "n2", "n2"], ""),
        (["n1", "n1", None], ["n1"] * 4, MACHINE_TERM),
        (["n1"] * 3, ["n1", "n1", "n2", "n2"], MACHINE_TERM),
        (["n1", "n2", "n2"], ["n2"] * 4, MACHINE_TERM),
        (["n1"] * 3, ["n2"] * 4, ""),
        (["n1"] * 3, ["n2", "n3", "n2", "n3"], ""),
    ],
)
def test_what_hides_the_machine_is_compared_with_a_term_for_it_or_not_at_all(
    mine: list[str | None], other: list[str | None], test: str
) -> None:
    found = judge([on(GOOD, mine)], on(REFERENCE, other), HOUSE)["a"]
    assert (found.comparison.test if found.comparison else "") == test
    assert found.kind == (BETTER if test else NO_VERDICT)
    if not test:
        assert found.reason.startswith("its runs are from n1, the reference's from n2")


def test_the_machine_term_is_a_regression_on_variant_and_machine() -> None:
    hosts = ["n1"] * 3, ["n1", "n1", "n2", "n2"]
    found = judge([on(GOOD, hosts[0])], on(REFERENCE, hosts[1]), HOUSE)["a"].comparison
    assert found is not None
    # Runs of the reference on n2 tell their own mean and add to the spread.
    scores = [r.val_bpb for r in (*GOOD.rows, *REFERENCE.rows) if r.val_bpb]
    mine, here, there = np.split(np.array(scores), [3, 5])
    variance = sum(float(((x - x.mean()) ** 2).sum()) for x in (mine, here, there)) / 4
    assert found.df == 4 and found.difference == pytest.approx(mine.mean() - here.mean())
    assert found.standard_error == pytest.approx(np.sqrt(variance * (1 / 3 + 1 / 2)))
    assert found.p_below() == pytest.approx(stats.t.cdf(found.difference / found.standard_error, 4))


def test_seeds_on_one_machine_are_no_more_often_better_by_chance_than_the_rule_allows() -> None:
    rng, wrong, blind = np.random.default_rng(3), 0, 0
    for _ in range(600):
        slow = MACHINE_SD * rng.standard_normal(2)
        mine = variant("a", (1.2 + slow[0] + SD * rng.standard_normal(4)).tolist())
        other = variant("b", (1.2 + slow[[0, 0, 1, 1]] + SD * rng.standard_normal(4)).tolist())
        blind += judge([mine], other, HOUSE)["a"].kind == BETTER
        wrong += judge([on(mine, ["n1"] * 4)], on(other, ["n1", "n1", "n2", "n2"]), HOUSE)["a"].kind == BETTER
    # Four standard errors of a share of 0.05 in 600 are 0.036.
    assert wrong / 600 < 0.05 + 0.036 and blind > wrong


def test_the_row_of_a_machine_term_is_of_one_piece(runs: Path) -> None:
    """Means that contain the machines say the opposite of the fit: difference, interval, p and rank are the fit's."""
    ours, other = with_lr(0.02), with_lr(0.04)
    for seed, bpb in enumerate((1.2200, 1.2202, 1.2198), start=1):
        write_run(runs, ours, bpb, seed, host="b")
    for seed, (bpb, host) in enumerate(((1.2290, "a"), (1.2292, "a"), (1.2288, "a"), (1.2180, "b")), start=1):
        write_run(runs, other, bpb, seed, host=host)
    asked = [(["optim.matrix_lr=0.02"], ours, seed) for seed in (1, 2, 3)]
    asked += [(["optim.matrix_lr=0.04"], other, seed) for seed in (1, 2, 3, 4)]
    write_sweep(runs, "lr", asked)
    findings = judged(read_study(["lr"]), HOUSE)
    reference, row = (result_row(findings, findings.study.variants[i]) for i in (0, 1))
    assert row["mean_bpb"] > reference["mean_bpb"]
    assert row["difference_bpb"] == pytest.approx(-0.002) and row["difference_nats_per_token"] < 0
    assert row["interval_low_bpb"] < row["difference_bpb"] < row["interval_high_bpb"] < 0
    assert row["verdict"] == "better" and row["p"] < 0.05
    assert (row["rank"], reference["rank"]) == ("best", "")
    assert any("the means contain the machines" in line for line in remarks_on(findings))
