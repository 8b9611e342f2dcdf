"""The optimum of one number is bounded by values that are shown to be worse, and by nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from golf.lab.report.findings import judged
from golf.lab.report.optimum import about_optimum
from golf.lab.report.rows import RunRow
from golf.lab.report.study import Study
from golf.settings.config import RulesConfig
from tests.lab.report.runs import variant, write_lr_sweep
from tests.support import golf_command

Scores = Mapping[str, Sequence[float]]


def sentences(scores: Scores) -> list[str]:
    variants = [replace(variant(value, bpbs), values={"lr": value}) for value, bpbs in scores.items()]
    return list(about_optimum(judged(Study("", tuple(variants), variants[0], swept=("lr",)), RulesConfig())))


def around(means: Sequence[float]) -> list[list[float]]:
    return [[mean, mean + 3e-4, mean - 2e-4] for mean in means]


@pytest.mark.parametrize(
    "means, where",
    [
        ((1.23, 1.22, 1.21, 1.22, 1.23), "between 2 and 4."),
        ((1.23, 1.2101, 1.21, 1.2102, 1.23), "between 1 and 5."),
        ((1.23, 1.22, 1.21, 1.2101, 1.2102), "above 2; no higher value is shown to be worse."),
        ((1.21, 1.22, 1.23, 1.24, 1.25), "below 2; no lower value is shown to be worse."),
        ((1.2101, 1.21, 1.2102, 1.21, 1.2101), ""),
    ],
)
def test_values_that_are_worse_bound_the_optimum(means: Sequence[float], where: str) -> None:
    said = sentences(dict(zip("12345", around(means), strict=True)))
    assert said == ([f"lr: if the score has one minimum, it lies {where}"] if where else [])


def test_two_values_or_one_run_each_or_words_bound_nothing() -> None:
    means = around((1.23, 1.21, 1.23))
    assert sentences(dict(zip("12", means, strict=False))) == []
    assert sentences(dict(zip(("a", "b", "c"), means, strict=True))) == []
    assert sentences({value: bpbs[:1] for value, bpbs in zip("123", means, strict=True)}) == []


def test_a_value_that_lost_runs_bounds_nothing() -> None:
    means = around((1.23, 1.21, 1.23))
    variants = [replace(variant(value, bpbs), values={"lr": value}) for value, bpbs in zip("123", means, strict=True)]
    lost = replace(variants[2], rows=(*variants[2].rows, RunRow("3", "3", 4, state="diverged")))
    study = Study("", (*variants[:2], lost), variants[0], swept=("lr",))
    assert list(about_optimum(judged(study, RulesConfig()))) == []


def test_the_report_of_a_sweep_says_it(runs: Path) -> None:
    rates = (0.01, 0.02, 0.04)
    write_lr_sweep(runs, dict(zip(rates, around((1.24, 1.22, 1.23)), strict=True)))
    done = golf_command("report", "lr", "--format", "markdown")
    assert "optim.matrix_lr: if the score has one minimum, it lies between 0.01 and 0.04." in done.stdout, done.stderr


@pytest.mark.parametrize("skew", [0.0, 0.9])
@pytest.mark.parametrize("seeds, shared, widening", [(2, 0.0, 1.0), (3, 0.8, 1.0), (3, 0.0, 10.0)])
def test_a_bound_is_wrong_no_more_often_than_said(skew: float, seeds: int, shared: float, widening: float) -> None:
    random, sweeps, wrong = np.random.default_rng(3), 100, 0
    x = np.log(1.4) * (np.arange(5) - 2)
    for _ in range(sweeps):
        optimum = random.uniform(-0.8, 0.8)
        u = x - optimum
        means = 1.22 + 1e-3 * u * u * (1 + skew * np.tanh(u))
        own = random.normal(0, 1, (5, seeds)) * np.sqrt(1 - shared) + random.normal(0, 1, seeds) * np.sqrt(shared)
        scores = means[:, None] + 5e-4 * own * (widening ** np.maximum(u, 0))[:, None]
        names = {f"{at:.6f}": bpbs.tolist() for at, bpbs in zip(x, scores, strict=True)}
        for said in sentences(names):
            words = said.split("it lies ")[1].split(";")[0].rstrip(".").split()
            low = float(words[1]) if words[0] in ("between", "above") else -np.inf
            high = float(words[-1]) if words[0] in ("between", "below") else np.inf
            wrong += not low <= optimum <= high
    # The rule's intervals are 90 %: 0.1 and four standard errors.
    assert wrong <= (0.1 + 4 * (0.1 * 0.9 / sweeps) ** 0.5) * sweeps
