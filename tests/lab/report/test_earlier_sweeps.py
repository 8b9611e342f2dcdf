"""Runs by which an earlier sweep chose a variant count again: they are named, and verdicts are as rare as before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golf.lab.report.findings import judged
from golf.lab.report.remarks import remarks_on
from golf.lab.report.study import read_study
from golf.lab.report.verdicts import BETTER
from golf.run.identity import variant_id
from golf.settings.config import RulesConfig
from tests.lab.report.runs import with_lr, write_lr_sweep, write_run, write_sweep

RULES = RulesConfig()
ALL = [0.01, 0.02, 0.03, 0.04, 0.05]
LATER: dict[str, Any] = {"created": "2026-02-01T00:00:00"}
# Against the first of five equal variants, the last is better at p = 0.03 by Welch's test alone.
SCORES = {
    0.01: [1.2200, 1.2208, 1.2204],
    0.02: [1.2201, 1.2209, 1.2202],
    0.03: [1.2204, 1.2196, 1.2207],
    0.04: [1.2210, 1.2204, 1.2199],
    0.05: [1.2195, 1.2198, 1.2192],
}


def asked(values: Sequence[float], seeds: Sequence[int] = (1, 2, 3)) -> list[Any]:
    return [([f"optim.matrix_lr={lr}"], with_lr(lr), seed) for lr in values for seed in seeds]


def plan_of(reference: float, seeds: int, **changes: Any) -> dict[str, Any]:
    sequential = {"seeds": list(range(1, seeds + 1)), "reference": variant_id(with_lr(reference))}
    return {"sequential": {**sequential, **changes}}


def said(findings: Any) -> str:
    return "\n".join(remarks_on(findings))


@pytest.mark.parametrize("how", ["a sweep", "folders", "rounds"])
def test_a_best_that_is_judged_again_on_its_own_runs(how: str, runs: Path) -> None:
    write_lr_sweep(runs, SCORES, "first-aaaaaaaa")
    best, reference = variant_id(with_lr(0.05)), variant_id(with_lr(0.01))
    before = judged(read_study(["first"]), RULES).verdicts[best]
    assert before.kind != BETTER and before.p is not None
    if how == "folders":
        targets = [str(runs / f"run-{id}") for id in (reference, best)]
    else:
        targets = ["second"]
        write_sweep(
            runs, "second-bbbbbbbb", asked((0.01, 0.05)), **LATER, **(plan_of(0.01, 3) if how == "rounds" else {})
        )
    findings = judged(read_study(targets), RULES)
    again = findings.verdicts[best]
    assert again.kind != BETTER and again.family == 4
    text = said(findings)
    assert "0.05 was the best of 5 in the sweep first-aaaaaaaa, by runs that count here again" in text
    assert "p counts 3 more variants of it as comparisons" in text
    if how == "rounds":
        assert "p holds, unlike the intervals" in text and "intervals and p hold" not in text
    else:
        assert again.p == pytest.approx(before.p) and "3 of an earlier sweep" in text


def test_rivals_count_by_their_own_p(runs: Path) -> None:
    """Beside three clear winners the fourth has the p that it had among them, and not that of Bonferroni."""
    winners = {0.02: -0.010, 0.03: -0.012, 0.04: -0.014, 0.05: -0.0009}
    start = SCORES[0.01]
    noise = [0.0003, -0.0002, 0.0001]
    scores = {0.01: start} | {lr: [s + by + n for s, n in zip(start, noise, strict=True)] for lr, by in winners.items()}
    write_lr_sweep(runs, scores, "first-aaaaaaaa")
    last = variant_id(with_lr(0.05))
    before = judged(read_study(["first"]), RULES).verdicts[last]
    write_sweep(runs, "second-bbbbbbbb", asked((0.01, 0.05)), **LATER)
    again = judged(read_study(["second"]), RULES).verdicts[last]
    assert before.family == again.family == 4
    assert before.p is not None and again.p == pytest.approx(before.p, rel=1e-9)


def test_fresh_seeds_and_larger_sweeps_need_no_correction(runs: Path) -> None:
    write_lr_sweep(runs, SCORES, "first-aaaaaaaa")
    for lr in (0.01, 0.05):
        for seed in (4, 5, 6):
            write_run(runs, with_lr(lr), SCORES[lr][seed - 4], seed)
    write_sweep(runs, "second-bbbbbbbb", asked((0.01, 0.05), (4, 5, 6)), **LATER)
    findings = judged(read_study(["second"]), RULES)
    assert findings.verdicts[variant_id(with_lr(0.05))].kind == BETTER and "best of 5" not in said(findings)
    write_sweep(runs, "third-cccccccc", asked([*ALL, 0.06]), **LATER)
    assert "count here again" not in said(judged(read_study(["third"]), RULES))
    # What was made later has chosen nothing, and a sweep that never ran neither.
    write_sweep(runs, "fourth-dddddddd", asked([0.01, 0.05, 0.9, 0.8]), created="2025-01-01T00:00:00")
    assert "count here again" not in said(judged(read_study(["first"]), RULES))
    assert "fourth" not in said(judged(read_study(["second"]), RULES))


def test_a_reference_that_beat_all_others_keeps_its_runs(runs: Path) -> None:
    write_lr_sweep(runs, {0.01: [1.3200, 1.3208, 1.3204], 0.02: [1.3201, 1.3209], 0.05: SCORES[0.05]}, "first-aaaaaaaa")
    for seed in (4, 5):
        write_run(runs, with_lr(0.05), 1.2190 + seed / 1e5, seed)
    write_sweep(runs, "second-bbbbbbbb", asked((0.05, 0.01), (1, 2, 3, 4, 5)), **LATER)
    findings = judged(read_study(["second"]), RULES)
    assert findings.reference.mean("final") == pytest.approx(np.mean([*SCORES[0.05], 1.21904, 1.21905]))  # type: ignore[union-attr]
    assert "lucky" not in said(findings)


@pytest.mark.parametrize("target", ["two sweeps", "the root", "folders"])
def test_a_table_over_sweeps_in_rounds_says_that_it_counts_one_look(target: str, runs: Path) -> None:
    write_lr_sweep(runs, {lr: SCORES[lr] for lr in (0.01, 0.02)}, "unused")
    (runs / "sweeps/unused/sweep.json").unlink()
    write_sweep(runs, "a-aaaaaaaa", asked((0.01, 0.02)), **plan_of(0.01, 5))
    write_sweep(runs, "b-bbbbbbbb", asked((0.01, 0.02)), **LATER, **plan_of(0.01, 5))
    folders = [str(runs / f"run-{variant_id(with_lr(lr))}") for lr in (0.01, 0.02)]
    targets = {"two sweeps": ["a", "b"], "the root": [str(runs)], "folders": folders}[target]
    sentence = "Runs of a-aaaaaaaa, b-bbbbbbbb end when they are decided, and this table counts one look only"
    assert sentence in said(judged(read_study(targets), RULES))
    assert "counts one look only" not in said(judged(read_study(["a"]), RULES))


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_best_of_equal_variants_is_called_better_as_rarely_as_the_rule_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, wrong, count = np.random.default_rng(3), 0, 150
    for number in range(count):
        root = tmp_path / str(number)
        monkeypatch.setenv("GOLF_RUNS", str(root))
        scores = {lr: list(1.22 + 0.0007 * rng.standard_normal(3)) for lr in [*ALL, 0.06, 0.07, 0.08, 0.09, 0.1]}
        write_lr_sweep(root, scores, "first-aaaaaaaa")
        best = min(list(scores)[1:], key=lambda lr: np.mean(scores[lr]))
        write_sweep(root, "second-bbbbbbbb", asked((0.01, best)), **LATER)
        wrong += judged(read_study(["second"]), RULES).verdicts[variant_id(with_lr(best))].kind == BETTER
    # Without the correction it is one in six.
    assert wrong / count < 0.05 + 2 * (0.05 * 0.95 / count) ** 0.5
