"""The table of results in its four forms."""

import csv
import io
import math
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from golf.bits import bits_per_byte
from golf.lab.report.findings import judged
from golf.lab.report.remarks import remarks_on
from golf.lab.report.results import print_sweep, results_table
from golf.lab.report.rows import RunRow
from golf.lab.report.sequential import SequentialPlan
from golf.lab.report.statistics import luck_of_the_best, smallest_difference
from golf.lab.report.study import SEEDS_ADDED, Study, read_study
from golf.lab.report.table import Column, Table, as_text, render
from golf.lab.report.variants import Variant
from golf.run.identity import variant_id
from golf.run.result import Result
from golf.run.summary import console
from golf.settings.config import RulesConfig
from golf.words import signed, text_width
from tests.lab.report.runs import (
    BYTES_PER_TOKEN,
    LOWER_LR,
    finished,
    score,
    variant,
    with_lr,
    write_lr_sweep,
    write_run,
)

HOUSE, STRICT = RulesConfig(), RulesConfig(name="strict", alpha=0.01, margin_nats=0.005)
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
    assert len(lines) == 9 and lines[0].startswith("| optim.matrix_lr | verdict | post-quant bpb | sd | n |")
    assert len({line.replace("\\|", "").count("|") for line in lines}) == 1
    assert "nan \\| inf" in lines[-1]


@pytest.mark.parametrize("columns", [28, 40, 60, 80])
def test_a_narrow_terminal_keeps_the_verdict_and_names_the_rest(
    columns: int, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lr_sweep(runs, {0.04: [1.2277, 1.2284, 1.2281], 0.02: [1.2230, 1.2236, 1.2228]})
    table = results_table(judged(read_study(["lr"]), HOUSE))
    monkeypatch.setenv("COLUMNS", str(columns))
    text = as_text(table)
    box = [line for line in text.splitlines() if line[:1] in "┏┃┡│└"]
    assert max(map(len, box)) <= columns and "better" in "".join(box)
    # A hidden column whose cells wrap would leave empty lines below the rows.
    assert all(line.strip("│ ") for line in box)
    header = " ".join(" ".join(line.strip("┃ ").split("┃")) for line in box if line[0] == "┃")
    for column in table.filled[1:]:
        assert column.title.split()[-1] in header or column.title in text.split("Left out for lack of width: ")[1]


def test_a_narrow_terminal_goes_without_some_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("golf.lab.report.table.PLAIN_WIDTH", 100)
    text = as_text(table())
    box = [line for line in text.splitlines() if line.startswith(("│", "┃", "└"))]
    assert max(map(len, box)) <= 100 and "Left out for lack of width: 90% interval of Δ bpb" in text
    assert all(part in text for part in ("1.2230", "−0.0056", "not distinguishable", "reference"))
    monkeypatch.setattr("golf.lab.report.table.PLAIN_WIDTH", 80)
    text = as_text(table())
    assert max(map(len, text.splitlines()[:12])) == 80 and "diverged" in text and "1.2230" in text and "−0.0056" in text


@pytest.mark.parametrize("columns, width", [("100", 100), ("", 300), ("0", 300), ("wide", 300)])
def test_columns_is_the_width_where_there_is_no_terminal(
    columns: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert text_width(300) == width
    widest = max(len(line) for line in as_text(table()).splitlines() if line.startswith("┃"))
    assert widest <= width and (widest > 100) == (width > 100)
    console(140).print("x" * 400)
    assert max(map(len, capsys.readouterr().out.splitlines())) == min(width, 140)


def test_sentences_say_the_rule_and_what_could_have_been_missed() -> None:
    notes = remarks_on(judged(lr_study(), RulesConfig(name="strict", alpha=0.01, margin_nats=0.005)))
    assert any("better by more than 0.005 nats per token or worse at one-sided p < 0.01" in note for note in notes)
    assert any("pooled test, Holm-corrected over 5 comparisons" in note for note in notes)


def test_single_runs_ask_for_more() -> None:
    study = Study("x", (variant("a", [1.2]), variant("b", [1.1])), None)
    alone = judged(replace(study, reference=study.variants[0]), RulesConfig())
    assert any("borrow one with --sigma" in note for note in remarks_on(alone))
    borrowed = judged(replace(study, reference=study.variants[0]), RulesConfig(), sigma=0.0007)
    assert any("given 0.0007 bpb" in note for note in remarks_on(borrowed))


def test_scores_taken_in_two_ways_are_compared_by_the_one_they_share() -> None:
    one = variant("a", [1.2, 1.201, 1.202], post_quant_bpb=1.2)
    other = variant("b", [1.17, 1.171, 1.172], how="sliding window, stride 64", post_quant_bpb=1.21)
    study = Study("x", (one, other), one)
    assert judged(study, RulesConfig()).score == "post_quant"
    explicit = judged(study, RulesConfig(), score="final")
    assert "not comparable" in explicit.verdicts["b"].reason and explicit.best is None


def _remarks(variants: list[Variant], reference: Variant | float, rules: RulesConfig = HOUSE, **options) -> str:
    """Return the remarks on a study, with the reference first if it is a variant."""
    found = (reference, *variants) if isinstance(reference, Variant) else tuple(variants)
    of_study = reference if isinstance(reference, Variant) else None
    against = None if isinstance(reference, Variant) else reference
    return "\n".join(remarks_on(judged(Study("x", found, of_study), rules, against=against, **options)))


def test_the_smallest_difference_has_the_rules_margin() -> None:
    one, other = variant("a", [1.2 + e for e in NOISE]), variant("b", [1.21 + e for e in NOISE])
    sd = float(np.std(NOISE, ddof=1))
    margin = bits_per_byte(STRICT.margin_nats, 1, BYTES_PER_TOKEN)
    expected = smallest_difference(sd, 3, alpha=0.01, power=0.8, margin=margin)
    assert expected > margin + sd
    assert f"an improvement of {expected:.4f} bpb" in _remarks([other], one, STRICT)


def test_pairs_have_the_noise_of_their_differences() -> None:
    before = [1.21, 1.22, 1.25]
    gains = [0.0010, 0.0012, 0.0011]
    one, other = variant("a", before), variant("b", [x - d for x, d in zip(before, gains, strict=True)])
    paired = [
        replace(v, rows=tuple(replace(r, pre_quant_bpb=x) for r, x in zip(v.rows, before, strict=True)))
        for v in (one, other)
    ]
    text = _remarks(paired[1:], paired[0])
    expected = smallest_difference(0.0001, 3, alpha=0.05, power=0.8, published=True)
    assert "Differences within pairs scatter by 0.00010 bpb (2 degrees of freedom): at 3 pairs" in text
    # Four decimals would show one digit of it, or none.
    assert 0.0001 < expected < 0.001
    assert f"an improvement of {expected:.5f} bpb" in text and "Seeds scatter" not in text


def test_only_variants_with_a_comparison_tell_the_noise() -> None:
    one, other = variant("a", [1.2 + e for e in NOISE]), variant("b", [1.21 + e for e in NOISE])
    elsewhere = variant("c", [1.5, 1.9], data="ffff")
    text = _remarks([other, elsewhere, variant("d", [1.0])], one)
    assert f"Seeds scatter by {float(np.std(NOISE, ddof=1)):.5f} bpb (4 degrees of freedom): at 3 seeds each" in text


def test_more_seeds_are_asked_for_where_no_difference_would_be_found() -> None:
    one, *others = (variant(f"v{i}", [1.2 + 0.001 * i, 1.2005 + 0.001 * i]) for i in range(2))
    text = _remarks(others, one, replace(STRICT, alpha=1e-4))
    assert "at 2 seeds each, no improvement up to 50 standard deviations is found 80% of the time. More seeds" in text


def test_the_sentence_counts_the_family_of_the_p_values() -> None:
    one, other = variant("a", [1.2 + e for e in NOISE]), variant("b", [1.2001 + e for e in NOISE])
    waiting = [Variant(f"w{i}", "w", (RunRow("w", "w", 1, "waiting"),)) for i in range(4)]
    text = _remarks([other, *waiting], one)
    assert "(Welch test, Holm-corrected over 5 comparisons, 4 of them to come)" in text
    expected = smallest_difference(float(np.std(NOISE, ddof=1)), 3, alpha=0.05 / 5, power=0.8)
    assert f"an improvement of {expected:.4f} bpb" in text


def test_a_variant_that_was_not_tested_is_marked() -> None:
    lucky, good, bad = variant("lucky", [1.0]), variant("good", [1.1, 1.1001]), variant("bad", [1.2, 1.2001])
    findings = judged(Study("x", (bad, good, lucky), bad), HOUSE)
    rows = list(csv.DictReader(io.StringIO(render(results_table(findings), "csv"))))
    assert {row["variant"]: row["rank"] for row in rows} == {"lucky": "not tested", "good": "best", "bad": ""}


def test_variants_on_two_texts_have_no_best_against_a_published_score() -> None:
    one, other = variant("a", [1.1, 1.1001]), variant("b", [1.0, 1.0001], data="ffff")
    findings = judged(Study("x", (one, other), one), HOUSE, against=1.2244)
    assert findings.best is None and {v.kind for v in findings.verdicts.values()} == {"no verdict"}
    rows = list(csv.DictReader(io.StringIO(render(results_table(findings), "csv"))))
    assert [row["rank"] for row in rows] == ["not tested", "not tested"]


def test_seeds_on_two_texts_are_named() -> None:
    found = variant("a", [1.1, 1.8])
    mixed = replace(found, rows=(found.rows[0], replace(found.rows[1], data="ffff")))
    assert "a: its seeds were scored on several texts and are not averaged." in _remarks([mixed], 1.2244)


def test_what_flatters_a_number_is_said() -> None:
    variants = [variant(str(i), [1.2 + e, 1.2003 + e]) for i, e in enumerate(NOISE)]
    text = _remarks(variants, 1.2244, sigma=0.0007)
    assert "1.2244 is taken as exact: it has noise of its own" in text
    assert "The given 0.0007 bpb is not used" in text
    single = _remarks([variant("b", [1.1])], variant("a", [1.2]), sigma=0.0007)
    assert not any(words in single for words in ("taken as exact", "not used", "flatters"))


def test_the_best_is_flattered_only_among_variants_that_compare_and_may_be_equal() -> None:
    tied = [
        variant(name, [1.2 + e + noise for noise in np.roll([0, 1e-4, 7e-4], turn)])
        for turn, (name, e) in enumerate(zip("abcd", (0, 1e-4, 2e-4, 3e-4), strict=True))
    ]
    sd = float(np.std([0, 1e-4, 7e-4], ddof=1))
    luck = luck_of_the_best(4, sd, 3)
    expected = (
        "4 variants may be equal, as none was shown to be worse than the best: "
        f"if they are, chance flatters the best by {luck:.5f} bpb"
    )
    # Neither what is on another text nor what is clearly worse could have been the best.
    besides = [variant("text", [1.0, 1.0001], data="ffff"), variant("worse", [1.3, 1.3001, 1.3002])]
    assert expected in _remarks([*tied[1:], *besides], tied[0])
    better = variant("better", [1.1, 1.1001, 1.1003])
    assert "flatters" not in _remarks([better, *tied[1:]], tied[0])
    assert "3 variants may be equal" in _remarks([variant(name, [1.2]) for name in "ab"], variant("c", [1.21]))


def test_number_formats_of_the_same_checkpoints_share_the_luck_of_their_trainings() -> None:
    trained = np.array([1.21, 1.22, 1.25])
    noise = 1e-4 * np.random.default_rng(0).standard_normal((4, 3))
    formats = [variant(name, [*row]) for name, row in zip("abcd", trained + noise, strict=True)]
    pairs = [
        replace(v, rows=tuple(replace(r, pre_quant_bpb=x) for r, x in zip(v.rows, trained, strict=True)))
        for v in formats
    ]
    # Residuals of a table of formats and checkpoints, with (4 - 1) · (3 - 1) degrees of freedom.
    rest = noise - noise.mean(0) - noise.mean(1, keepdims=True) + noise.mean()
    luck = luck_of_the_best(4, float(np.sqrt((rest**2).sum() / 6)), 3)
    assert f"chance flatters the best by {luck:.6f} bpb" in _remarks(pairs[1:], pairs[0])
    # A format that left a sweep in rounds has fewer seeds: all are compared on those they share.
    more = [replace(v, rows=(*v.rows, replace(v.rows[0], seed=4, val_bpb=1.3, pre_quant_bpb=1.3))) for v in pairs[1:]]
    # The best has four seeds: by its mean the one without the bad seed would be it, by the fit beside the seeds not.
    assert f"best by {luck * math.sqrt(3 / 4):.6f} bpb" in _remarks([*more[1:], pairs[0]], more[0])
    # Where nothing tells the checkpoints, what the runs of a seed share does.
    assert f"chance flatters the best by {luck:.6f} bpb" in _remarks(formats[1:], formats[0])


def test_the_choice_of_a_variant_is_no_word_under_a_table_that_compares_nothing(runs: Path) -> None:
    write_lr_sweep(runs, {0.04: [1.2286, 1.2290], 0.03: [1.2240, 1.2236], 0.02: [1.2230, 1.2228]})
    folder = str(next(runs.glob(f"*-{variant_id(with_lr(0.02))}")))
    alone = read_study([folder])
    assert "fresh seeds" not in "".join(remarks_on(judged(alone, HOUSE)))
    assert "was the best of 3" in "".join(remarks_on(judged(alone, HOUSE, against=1.23)))


def test_machines_and_faults_are_named() -> None:
    one, other = variant("a", [1.2], machine="8× H100"), variant("b", [1.1], machine="8× H200", faults=("no seed",))
    notes = remarks_on(judged(Study("x", (one, other), one), RulesConfig()))
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


def test_a_copy_of_the_runs_gives_the_same_table(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clone writes files in any order, and `seed1.2` before `seed1`: attempts are told by their numbers."""
    write_lr_sweep(runs, {0.04: [1.2277, 1.2284, 1.2281], 0.02: [1.2230, 1.2236, 1.2228]})
    write_run(runs, with_lr(0.02), 1.2100, 1, attempt=2)
    write_run(runs, with_lr(0.02), 1.2150, 2, attempt=10)
    write_run(runs, with_lr(0.02), 1.2160, 2, attempt=9)
    expected = as_text(results_table(judged(read_study(["lr"]), RulesConfig())))
    assert "seed1.2 (1.2100 bpb) does not count beside that of seed1" in expected and "seed2.9 (1.2160" in expected
    copied = tmp_path / "copied"
    shutil.copytree(runs, copied)
    monkeypatch.setenv("GOLF_RUNS", str(copied))
    for seed in range(4):
        paths = sorted(copied.rglob("*"))
        random.Random(seed).shuffle(paths)
        for age, path in enumerate(paths):
            os.utime(path, (1000 + age, 1000 + age))
        assert as_text(results_table(judged(read_study(["lr"]), RulesConfig()))) == expected


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0.0000"), (-0.0066, "−0.0066"), (1.2e-5, "+0.000012"), (-4.6e-5, "−0.000046"), (6e-5, "+0.0001")],
)
def test_a_difference_that_four_decimals_hide_has_two_digits(value: float, shown: str) -> None:
    assert signed(value) == shown


def test_the_reference_of_a_decided_sweep_was_tested_by_what_is_better_than_it() -> None:
    better, reference = variant("a", [1.2, 1.2001, 1.1999]), variant("b", [1.22, 1.2201, 1.2199])
    study = Study("x", (reference, better), reference, plan=SequentialPlan((1, 2, 3), "b"))
    ranks = {row["variant_id"]: row["rank"] for row in results_table(judged(study, RulesConfig())).rows}
    assert ranks == {"a": "best", "b": ""}


def test_a_reference_on_another_text_than_all_others_is_not_the_best() -> None:
    others = tuple(variant(name, [1.1, 1.1001, 1.1002], data="another") for name in "ab")
    alone = variant("c", [1.05, 1.0501])
    found = judged(Study("x", (alone, *others), alone), RulesConfig())
    assert found.best is None
    assert {row["rank"] for row in results_table(found).rows} == {"not tested"}
    assert judged(Study("x", (alone,), alone), RulesConfig()).best is alone


def test_a_sweep_in_rounds_to_which_seeds_were_added_does_not_say_that_p_holds() -> None:
    better, reference = variant("a", [1.2, 1.2001, 1.1999]), variant("b", [1.22, 1.2201, 1.2199])
    study = Study("x", (reference, better), reference, plan=SequentialPlan((1, 2, 3), "b"))
    for notes, holds in (((), True), ((f"{SEEDS_ADDED} x-aaaaaaaa: look.",), False)):
        said = " ".join(remarks_on(judged(replace(study, notes=notes), RulesConfig())))
        assert ("hold whenever the sweep stopped" in said) == holds and "is shared out over all of them" in said
