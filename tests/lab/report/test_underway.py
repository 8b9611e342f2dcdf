"""A running variant beside its reference, at equal share of the budget."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from golf.lab.report.board_values import RunsRoot
from golf.lab.report.findings import judged
from golf.lab.report.remarks import remarks_on
from golf.lab.report.study import read_study
from golf.lab.report.underway import OF_PUBLIC
from golf.settings.config import Config, RulesConfig, ScaleConfig, ScheduleConfig
from tests.lab.report.runs import with_lr, write_run, write_sweep


def sweep(runs: Path, variant: Config, *, pace: float = 0.06, upto: int = 6, behind: float = 0.0046) -> list[str]:
    """Write a reference of 0.05 s a step and a running variant; return what the report says of those that go on."""
    reference = with_lr(0.04)
    for cfg, bpb, step_seconds, last in ((reference, 1.2, 0.05, 12), (variant, None, pace, upto)):
        folder = write_run(runs, cfg, bpb)
        ahead = behind if cfg is variant else 0.0
        events = []
        for number in range(1, last + 1):
            seconds = 1000 * number * step_seconds
            # By share of the budget, and not by step, the variant is `behind` all along.
            score = 1.5 - 0.3 * seconds / 600 + ahead
            at = {"step": 1000 * number, "tokens": number, "train_seconds": seconds}
            events.append({"event": "validation", **at, "val_loss": 2.0, "val_bpb": score})
        (folder / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    write_sweep(runs, "lr", [(["a"], reference, 1), (["b"], variant, 1)])
    return [said for said in remarks_on(judged(read_study(["lr"]), RulesConfig())) if "goes on" in said]


def test_a_variant_stands_beside_its_reference_at_equal_share(runs: Path) -> None:
    (said,) = sweep(runs, with_lr(0.02))
    assert ", seed 1, goes on: at 60% of the budget its validation is +0.0046 bpb from the reference's" in said
    assert said.endswith(f"; {OF_PUBLIC}.")


def test_the_last_validation_of_the_window_counts(runs: Path) -> None:
    (said,) = sweep(runs, with_lr(0.02), upto=9, behind=-0.002)
    assert "at 70% of the budget its validation is −0.0020 bpb from the reference's." in said


@pytest.mark.parametrize(
    ("variant", "upto"),
    [
        (with_lr(0.02), 4),
        (with_lr(0.02, schedule=ScheduleConfig(warmdown_iters=3000)), 6),
        (with_lr(0.02, scale=ScaleConfig(step_ratio=0.03)), 6),
    ],
    ids=["too early", "another schedule", "another scale"],
)
def test_nothing_is_said_where_nothing_is_known(runs: Path, variant: Config, upto: int) -> None:
    assert sweep(runs, variant, upto=upto) == []


def test_a_validation_of_a_running_variant_is_news_for_the_board(runs: Path) -> None:
    sweep(runs, with_lr(0.02))
    board = RunsRoot(runs)
    board.overview()
    before = board.state("lr")
    (folder,) = [
        path.parent for path in runs.glob("*/seed1/metrics.jsonl") if not (path.parent / "result.json").exists()
    ]
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"event": "validation", "step": 7000, "val_loss": 2.0, "val_bpb": 1.3}) + "\n")
    board.overview()
    assert board.state("lr") != before
