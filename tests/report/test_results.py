"""The table of results in its four forms."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

from golf.report.findings import judged
from golf.report.results import results_table
from golf.report.rows import RunRow
from golf.report.study import Study
from golf.report.sweep_table import print_sweep
from golf.report.table import Column, Table, as_text, render
from golf.report.variants import Variant
from golf.run.result import Result
from golf.settings.config import RulesConfig
from tests.report.runs import LOWER_LR, finished, score, variant, with_lr

NOISE = (-0.0006, 0.0001, 0.0005)


def lr_study() -> Study:
    """Return record 2026-03-18_LowerLR as if it had three seeds a value, with a diverged variant."""
    variants = [variant(name, [bpb + e for e in NOISE]) for name, bpb in LOWER_LR.items()]
    variants = [replace(v, label=f"optim.matrix_lr={v.id}", values={"optim.matrix_lr": v.id}) for v in variants]
    lost_rows = (RunRow("0.1", "x", 1, "diverged", "the loss was nan | inf"),)
    lost = Variant("0.1", "optim.matrix_lr=0.1", lost_rows, {"optim.matrix_lr": "0.1"})
    return Study("lr", (*variants, lost), variants[1], "grid", ("optim.matrix_lr",))


def table() -> Table:
    return results_table(judged(lr_study(), RulesConfig()))


def test_rows_are_sorted_and_ties_and_failures_are_named() -> None:
    rows = list(csv.DictReader(io.StringIO(render(table(), "csv"))))
    assert [row["variant"] for row in rows] == ["0.02", "0.015", "0.025", "0.03", "0.04", "0.06", "0.1"]
    assert [row["rank"] for row in rows] == ["best", "tied", "", "", "", "", ""]
    assert [row["verdict"] for row in rows] == [
        *["better"] * 3, "not distinguishable", "reference", "worse", "no verdict: no run that counts"
    ]  # fmt: skip
    assert rows[-1]["state"] == "diverged: the loss was nan | inf" and rows[-1]["mean_bpb"] == ""
    best = rows[0]
    assert float(best["mean_bpb"]) == pytest.approx(1.2230) and float(best["difference_bpb"]) == pytest.approx(-0.0056)
    assert float(best["difference_nats_per_token"]) == pytest.approx(-0.00946, abs=1e-5)
    assert float(best["interval_low_bpb"]) < -0.0056 < float(best["interval_high_bpb"])


def test_markdown_is_a_table_and_escapes_bars() -> None:
    lines = [line for line in render(table(), "markdown").splitlines() if line.startswith("|")]
    assert len(lines) == 9 and lines[0].startswith("| optim.matrix_lr | post-quant bpb | sd | n |")
    assert len({line.replace("\\|", "").count("|") for line in lines}) == 1
    assert "nan \\| inf" in lines[-1]


def test_latex_has_rows_of_one_width_and_escapes() -> None:
    text = render(table(), "latex")
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 8 and len({row.count("&") for row in rows}) == 1
    assert r"optim.matrix\_lr" in text and r"90\% interval" in text and "$-$0.0056" in text


def test_a_narrow_terminal_goes_without_some_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("golf.report.table.PLAIN_WIDTH", 100)
    text = as_text(table())
    box = [line for line in text.splitlines() if line.startswith(("│", "┃", "└"))]
    assert max(map(len, box)) <= 100 and "Left out for lack of width: 90% interval of Δ bpb" in text
    assert all(part in text for part in ("1.2230", "−0.0056", "not distinguishable", "reference"))
    monkeypatch.setattr("golf.report.table.PLAIN_WIDTH", 80)
    text = as_text(table())
    assert max(map(len, text.splitlines()[:12])) == 80 and "1.2230" in text and "−0.0056" in text


def test_sentences_say_the_rule_and_what_could_have_been_missed() -> None:
    notes = judged(lr_study(), RulesConfig(name="strict", alpha=0.01, margin_nats=0.005)).remarks
    assert any("better by more than 0.005 nats per token or worse at one-sided p < 0.01" in note for note in notes)
    assert any("Welch test, Holm-corrected over 5 comparisons" in note for note in notes)


def test_single_runs_ask_for_more() -> None:
    study = Study("x", (variant("a", [1.2]), variant("b", [1.1])), None)
    alone = judged(replace(study, reference=study.variants[0]), RulesConfig())
    assert any("borrow one with --sigma" in note for note in alone.remarks)
    borrowed = judged(replace(study, reference=study.variants[0]), RulesConfig(), sigma=0.0007)
    assert any("given 0.0007 bpb" in note for note in borrowed.remarks)


def test_scores_taken_in_two_ways_are_compared_by_the_one_they_share() -> None:
    one = variant("a", [1.2, 1.201, 1.202], post_quant_bpb=1.2)
    other = variant("b", [1.17, 1.171, 1.172], how="sliding window, stride 64", post_quant_bpb=1.21)
    study = Study("x", (one, other), one)
    assert judged(study, RulesConfig()).score == "post_quant"
    explicit = judged(study, RulesConfig(), score="final")
    assert "not comparable" in explicit.verdicts["b"].reason and explicit.best is one


def test_machines_and_faults_are_named() -> None:
    one, other = variant("a", [1.2], machine="8× H100"), variant("b", [1.1], machine="8× H200", faults=("no seed",))
    notes = judged(Study("x", (one, other), one), RulesConfig()).remarks
    assert any("8× H100; 8× H200" in note for note in notes) and "b, seed 1: no seed" in notes


def test_runs_from_slow_machines_are_marked() -> None:
    one, other = variant("a", [1.2, 1.21]), variant("b", [1.3, 1.31])
    other = replace(other, rows=(other.rows[0], replace(other.rows[1], slowdown=1.312)))
    rows = list(
        csv.DictReader(io.StringIO(render(results_table(judged(Study("x", (one, other), one), RulesConfig())), "csv")))
    )
    assert [row["state"] for row in rows] == ["ok", "ok, seed 2 on a slow machine (×1.31)"]


def test_jobs_without_a_record_show_what_varies_and_every_failure(
    capsys: pytest.CaptureFixture[str], runs: Path
) -> None:
    lost: Result = finished(with_lr(0.9), 1.3, 1, state="diverged", reason="the loss was nan", post_quant=None)
    print_sweep("x", [
        (["model=4l", "optim.matrix_lr=0.04"], finished(with_lr(0.04), 1.2286, 1), ""),
        (["model=4l", "optim.matrix_lr=x"], None, "no such thing"),
        (["model=4l", "optim.matrix_lr=0.9"], lost, ""),
        (["model=4l", "optim.matrix_lr=0.02"], finished(with_lr(0.02), 1.2230, 1), ""),
    ], RulesConfig())  # fmt: skip
    shown = capsys.readouterr().out
    assert "model=4l" not in shown and "1.2230" in shown and "−0.0056" in shown
    assert "refused: no such thing" in shown and "diverged: the loss was nan" in shown
    slid = finished(with_lr(0.04), 1.2286, 2, post_quant_sliding=score(1.19, "sliding window, stride 64"))
    print_sweep("x", [(["seed=2"], slid, "")], RulesConfig())
    assert "1.1900" in capsys.readouterr().out


def test_values_of_a_column_nobody_filled_are_not_shown() -> None:
    small = Table((Column("a", "a"), Column("b", "b")), [{"a": 1}, {"a": float("nan")}])
    assert render(small, "markdown").splitlines()[0] == "| a |" and render(small, "csv").splitlines()[0] == "a,b"
