"""Sentences on two changes that ran alone and together: which of them are found, and how often they err."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from golf.lab.report.blocks import Blocks
from golf.lab.report.findings import judged
from golf.lab.report.interaction import about_interactions
from golf.lab.report.study import read_study
from golf.settings.composition import compose
from golf.settings.config import Config, RulesConfig
from tests.lab.report.runs import variant, write_run, write_sweep

FOUR = [["tech=[]"], ["tech=[xsa]"], ["optim.matrix_lr=0.02"], ["tech=[xsa]", "optim.matrix_lr=0.02"]]


def sentences(runs: Path, changes: Sequence[Sequence[str]], means: Sequence[float], seeds: int = 4) -> list[str]:
    """Return the sentences on a sweep with these overrides and means, whose seeds scatter by 0.0002 bpb."""
    runs_of_sweep: list[tuple[Sequence[str], Config, int]] = []
    noise = np.random.default_rng(1).normal(0, 2e-4, (len(means), seeds))
    for overrides, mean, of_seeds in zip(changes, means, noise, strict=True):
        cfg = replace(compose(overrides), seed=1)
        for seed, deviation in enumerate(of_seeds, 1):
            write_run(runs, cfg, mean + deviation, seed)
            runs_of_sweep.append(([*overrides, f"seed={seed}"], cfg, seed))
    write_sweep(runs, "four", runs_of_sweep, swept=["tech", "optim.matrix_lr"])
    return list(about_interactions(judged(read_study(["four"]), RulesConfig())))


@pytest.mark.parametrize(
    "both, found", [(1.2160, "no interaction is shown"), (1.2190, "they overlap"), (1.2120, "together they do more")]
)
def test_two_changes_add_up_or_not(runs: Path, both: float, found: str) -> None:
    (said,) = sentences(runs, FOUR, [1.2300, 1.2250, 1.2210, both])
    assert said.startswith(("with xsa and optim.matrix_lr=0.02: −0.00", "optim.matrix_lr=0.02 and with xsa: −0.00"))
    assert " bpb alone, −0.01" in said and said.endswith(f"): {found}.")


def test_a_sweep_of_two_changes_is_called_by_what_they_add(runs: Path) -> None:
    """The variants that `+sweep=interaction tech=[bigram,smear]` lists. Both together have a verdict."""
    asked: list[tuple[Sequence[str], Config, int]] = []
    means = {"[bigram,smear]": 1.23, "[smear]": 1.225, "[bigram]": 1.221, "[]": 1.219}
    for at, (dropped, mean) in enumerate(means.items()):
        overrides = ["tech=[bigram,smear]", f"drop={dropped}"]
        cfg = replace(compose(overrides), seed=1)
        for seed in (1, 2, 3):
            write_run(runs, cfg, mean + 1e-4 * np.sin(7.0 * seed + at), seed)
            asked.append(([*overrides, f"seed={seed}"], cfg, seed))
    write_sweep(runs, "two", asked, swept=["drop"], kind="interaction")
    findings = judged(read_study(["two"]), RulesConfig())
    labels = {v.label: findings.verdicts[v.id].kind for v in findings.study.variants if v is not findings.reference}
    assert labels == {"with bigram": "better", "with smear": "better", "with bigram, with smear": "better"}
    (said,) = about_interactions(findings)
    assert said.startswith("with smear and with bigram: −0.00") and "+0.0030 beside their sum" in said


def test_the_sign_and_the_interval_are_those_of_the_contrast(runs: Path) -> None:
    (said,) = sentences(runs, FOUR, [1.2300, 1.2250, 1.2210, 1.2190])
    difference, bounds = said.split("together, ")[1].split(" beside their sum (")
    low, _, high = bounds.split(")")[0].replace("−", "-").partition(" to ")
    assert float(low) < 0.0030 < float(high) and abs(float(difference) - 0.0030) < 0.0006


def test_without_both_alone_and_together_nothing_is_said(runs: Path) -> None:
    assert sentences(runs, [FOUR[0], FOUR[1], FOUR[3]], [1.23, 1.22, 1.21]) == []


def test_another_setting_of_the_same_technique_is_no_part_of_both(runs: Path) -> None:
    other = ["tech=[bigram]", "tech.bigram.buckets=1024"]
    four = [["tech=[]"], other, ["optim.matrix_lr=0.02"], ["tech=[bigram]", "optim.matrix_lr=0.02"]]
    assert sentences(runs, four, [1.23, 1.22, 1.21, 1.20]) == []


def test_several_pairs_share_the_error(runs: Path) -> None:
    third = ["optim.scalar_lr=0.01"]
    changes = [*FOUR, third, [*FOUR[1], *third], [*FOUR[2], *third]]
    said = sentences(runs, changes, [1.2300, 1.2250, 1.2210, 1.2160, 1.2290, 1.2240, 1.2200])
    assert len(said) == 3 and all("96.7% for 3 pairs" in sentence for sentence in said)


@pytest.mark.parametrize("others", [0, 3])
@pytest.mark.parametrize("noise", [(1, 1, 1, 1), (3, 1, 1, 1), (1, 1, 1, 3), (1, 2, 3, 4)], ids=str)
@pytest.mark.parametrize("seeds, shared", [(2, 0.0), (3, 0.8), (5, 0.0)])
def test_additive_changes_are_called_an_interaction_no_more_often_than_said(
    others: int, noise: tuple[float, ...], seeds: int, shared: float
) -> None:
    random = np.random.default_rng(5)
    sweeps, errors = 400, 0
    scales = np.array([*noise, *[1.0] * others])[:, None]
    for _ in range(sweeps):
        own = random.normal(0, 1, (len(scales), seeds)) * scales * np.sqrt(1 - shared)
        scores = 1.23 + 1e-3 * (own + random.normal(0, 1, seeds) * np.sqrt(shared))
        blocks = Blocks([variant(f"v{i}", row.tolist()) for i, row in enumerate(scores)], "final")
        contrast = blocks.contrast({"v0": 1.0, "v1": -1.0, "v2": -1.0, "v3": 1.0})
        if contrast:
            low, high = contrast.interval(0.95)
            errors += not low < 0 < high
    # 0.05 and four standard errors.
    assert errors <= (0.05 + 4 * (0.05 * 0.95 / sweeps) ** 0.5) * sweeps
