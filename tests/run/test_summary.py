"""Tables and curves of runs that ended well and of runs that failed."""

import json
from pathlib import Path

import pytest

from golf.bits import Score
from golf.run.curves import draw_curves
from golf.run.folder import RunFolder
from golf.run.result import Result
from golf.run.summary import print_result


def finished() -> Result:
    return Result(
        "base", "1234abcd", 1, state="ok", steps=10, tokens_seen=5120, train_seconds=119.6, budget_train_seconds=120.0,
        step_ms=11960.0, pre_quant=Score(2.0, 1.25, 100, 50, 1.0), post_quant=Score(2.1, 1.3125, 100, 50, 1.0),
        artifact_bytes=900_000, code_bytes=30_000, total_bytes=930_000, cap_bytes=1_000_000, data_name="own",
    )  # fmt: skip


def test_table_of_a_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    print_result(finished(), tmp_path)
    shown = capsys.readouterr().out
    for part in (
        "1.2500 bits per byte (loss 2.0000",
        "1.3125 bits per byte",
        "900,000 artifact + 30,000 code = 930,000 (93.0% of 1,000,000)",
        "119.6 of 120 s, 10 steps",
        str(tmp_path),
    ):
        assert part in shown


def scored_in_all_ways() -> Result:
    result = finished()
    result.post_quant_sliding = Score(1.9, 1.1875, 100, 50, 4.0, "sliding window, stride 64")
    result.post_quant_ttt = Score(1.8, 1.125, 100, 50, 9.0, "test-time training (sgd), stride 64")
    return result


def test_table_shows_every_score_and_what_it_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    print_result(scored_in_all_ways(), tmp_path)
    lines = capsys.readouterr().out.splitlines()
    for kind, bpb in (("sliding window, stride 64", "1.1875"), ("test-time training (sgd), stride 64", "1.1250")):
        (line,) = (line for line in lines if kind in line)
        assert f"{bpb} bits per byte" in line


def test_table_of_a_run_that_crashed_early(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    print_result(Result("base", "x", 1, state="crashed", reason="[/odd] markup [red]"), tmp_path)
    shown = capsys.readouterr().out
    assert "crashed: [/odd] markup [red]" in shown and "–" in shown


@pytest.mark.parametrize("events", [[], ["train"], ["train", "validation"]])
def test_curves_are_drawn_from_what_there_is(events: list[str], tmp_path: Path) -> None:
    lines = [
        {"event": e, "train_seconds": float(i), "train_loss": 5.0 - i, "val_loss": 5.0, "lr_multiplier": 1.0}
        for i in range(3)
        for e in events
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    draw_curves(RunFolder(tmp_path), finished())
    assert (tmp_path / "curves.png").exists() == bool(events)
