"""Rows from run folders in every state."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from golf.errors import GolfError
from golf.lab.report.findings import judged
from golf.lab.report.remarks import remarks_on
from golf.lab.report.rows import RunRow, bytes_per_token, row_of
from golf.lab.report.store import standing_row
from golf.lab.report.study import read_study
from golf.lab.report.variants import Variant
from golf.run.code import own_code
from golf.run.folder import by_age, finished_run
from golf.run.identity import variant_id
from golf.run.result import NOT_PLAUSIBLE, read_result
from golf.settings.config import Config
from tests.lab.report.runs import BYTES_PER_TOKEN, score, with_lr, write_run


def test_a_row_has_what_the_result_has(tmp_path: Path) -> None:
    sliding = score(1.19, "sliding window, stride 64")
    row = row_of(write_run(tmp_path, Config(), 1.2244, 7, post_quant_sliding=sliding))
    assert (row.variant, row.name, row.seed, row.state, row.source) == (variant_id(Config()), "run", 7, "ok", "own")
    assert (row.pre_quant_bpb, row.post_quant_bpb, row.sliding_bpb, row.ttt_bpb) == (1.2194, 1.2244, 1.19, None)
    assert (row.val_bpb, row.how) == (1.19, "sliding window, stride 64") and row.val_loss == sliding.val_loss
    assert row.bytes_per_token == pytest.approx(BYTES_PER_TOKEN, rel=1e-6)
    assert (row.total_bytes, row.cap_bytes, row.steps, row.step_ms) == (15_847_642, 16_000_000, 13_700, 43.8)
    assert row.machine == "8× H100" and row.data == "abcd" and row.counts


def test_a_score_that_is_not_plausible_is_named_below_the_table(runs: Path) -> None:
    said = f"0.0196 bits per byte {NOT_PLAUSIBLE}, for which LZMA needs 3.10"
    write_run(runs, Config(), 0.0196, 1, warnings=["the disk is full", said])
    other = write_run(runs, with_lr(0.03), 1.2244, 1, warnings=["the disk is full"])
    assert row_of(other).faults == ()
    notes = remarks_on(judged(read_study([str(runs)]), Config().rules))
    assert [note for note in notes if "disk" in note or "plausible" in note] == [f"run, seed 1: {said}"]


def test_bytes_per_token_of_a_published_score() -> None:
    assert bytes_per_token(2.07269931, 1.2243657) == pytest.approx(2.4423, abs=1e-4)
    assert bytes_per_token(2.0, None) is bytes_per_token(math.nan, 1.2) is bytes_per_token(0.0, 1.2) is None


def test_folders_without_a_result_say_so(tmp_path: Path) -> None:
    row = row_of(write_run(tmp_path, Config(), None, 3))
    assert (row.state, row.seed, row.name, row.variant) == ("unfinished", 3, "run", variant_id(Config()))
    assert not row.counts and row.is_open


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"state": "ok"}', '"x"', "null"])
def test_results_that_cannot_be_read_are_rows_too(tmp_path: Path, text: str) -> None:
    folder = write_run(tmp_path, Config(), None, 3)
    (folder / "result.json").write_text(text)
    row = row_of(folder)
    assert row.state == "unreadable" and "result.json cannot be read" in row.reason and row.seed == 3


def test_an_unknown_state_is_unreadable_with_the_known_ones(tmp_path: Path) -> None:
    folder = write_run(tmp_path, Config(), 1.2, state="splendid")
    row = row_of(folder)
    assert row.state == "unreadable" and not row.counts
    assert "its state 'splendid' is none of this version's: ok, over_bytes" in row.reason


def test_ok_without_a_finite_score_is_not_ok(tmp_path: Path) -> None:
    folder = write_run(tmp_path, Config(), 1.2)
    values = json.loads((folder / "result.json").read_text())
    values["post_quant"]["val_bpb"] = math.nan
    (folder / "result.json").write_text(json.dumps(values))
    assert row_of(folder).state == "unreadable" and not row_of(folder).counts


@pytest.mark.parametrize("bpb", [0, -1, 0.0, 20.0])
def test_ok_with_an_impossible_score_is_not_ok(tmp_path: Path, bpb: object) -> None:
    folder = write_run(tmp_path, Config(), 1.2)
    values = json.loads((folder / "result.json").read_text())
    values["post_quant"]["val_bpb"] = bpb
    (folder / "result.json").write_text(json.dumps(values))
    row = row_of(folder)
    assert row.state == "unreadable" and not row.counts and "no score between 0 and 20 bpb" in row.reason
    assert not replace(row, state="ok").counts


@pytest.mark.parametrize(
    ("key", "value"),
    [("total_bytes", "16000000"), ("steps", None), ("seed", "x"), ("seed", True), ("variant_id", 5), ("step_ms", [1])],
)
def test_one_damaged_value_makes_one_unreadable_row(tmp_path: Path, key: str, value: object) -> None:
    folder = write_run(tmp_path, Config(), 1.2, 3)
    values = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps({**values, key: value}))
    # A row may lack what a result must have.
    assert row_of(folder).state == ("ok" if value is None else "unreadable") and row_of(folder).seed == 3
    with pytest.raises(GolfError, match=f"{key} is "):
        read_result(folder / "result.json")


@pytest.mark.parametrize("bpb", [True, "1.2"])
def test_a_score_of_another_type_is_unreadable_too(tmp_path: Path, bpb: object) -> None:
    folder = write_run(tmp_path, Config(), 1.2)
    values = json.loads((folder / "result.json").read_text())
    values["post_quant"]["val_bpb"] = bpb
    (folder / "result.json").write_text(json.dumps(values))
    assert row_of(folder).state == "unreadable" and row_of(folder).val_bpb is None


def test_the_way_of_every_score_is_kept(tmp_path: Path) -> None:
    sliding, ttt = score(1.19, "sliding window, stride 64"), score(1.18, "TTT of 3 epochs")
    row = row_of(write_run(tmp_path, Config(), 1.2244, post_quant_sliding=sliding, post_quant_ttt=ttt))
    assert (row.how, row.sliding_how, row.ttt_how) == (ttt.how, sliding.how, ttt.how)


def test_a_finished_result_that_does_not_count_is_named(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path, Config(), 1.2286),
        write_run(tmp_path, Config(), None, attempt=2, state="interrupted"),
        write_run(tmp_path, Config(), 1.2200, attempt=3),
    ]
    row = standing_row(folders)
    assert row.val_bpb == 1.2286
    assert row.faults == ("the finished result of seed1.3 (1.2200 bpb) does not count beside that of seed1",)
    assert standing_row(folders[:1]).faults == standing_row(folders[:2]).faults == ()


def test_copies_of_a_run_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    first = write_run(tmp_path, Config(), 1.2286)
    copy = tmp_path / "copy-of-it" / first.name
    shutil.copytree(first, copy)
    assert standing_row([first, copy]).faults == standing_row([first, first]).faults == (), "nothing was replaced"
    (copy / "result.json").write_text((copy / "result.json").read_text().replace("1.2286", "1.2287"))
    (said,) = standing_row([first, copy]).faults
    assert f"{first.parent.name}/{first.name}" in said and f"copy-of-it/{first.name}" in said


def test_a_result_of_another_run_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOLF_RUNS", str(tmp_path))
    other, cfg = write_run(tmp_path, with_lr(0.02), 1.1), with_lr(0.04)
    for seed in (1, 3):
        folder = write_run(tmp_path, cfg, 1.2, seed)
        assert row_of(folder).counts and finished_run(variant_id(cfg), seed)
        if seed == 3:
            other = tmp_path / f"{cfg.name}-{variant_id(cfg)}" / "seed1"
        shutil.copy(other / "result.json", folder)
        row = row_of(folder)
        assert (row.state, row.variant, row.seed, row.counts) == ("unreadable", variant_id(cfg), seed, False)
        assert row.reason.startswith(f"result.json is of {cfg.name}-") and row.reason.endswith("/seed1")
        assert not finished_run(variant_id(cfg), seed), "a sweep repeats it"


def test_the_first_attempt_that_ended_stands_for_the_seed(tmp_path: Path) -> None:
    cfg = with_lr(0.04)
    folders = [
        write_run(tmp_path, cfg, 1.25, attempt=1),
        write_run(tmp_path, cfg, 1.24, attempt=2),
        write_run(tmp_path, cfg, None, attempt=3),
        write_run(tmp_path, cfg, 1.0, attempt=10, state="crashed", reason="no memory"),
    ]
    assert standing_row(folders).val_bpb == 1.25
    assert standing_row([folders[2], folders[3]]).state == "crashed"
    assert standing_row([folders[2]]).state == "unfinished"
    other_name = write_run(tmp_path, replace(cfg, name="renamed"), 1.23)
    # Under another name the number says nothing, but the start does.
    for folder in (*folders, other_name):
        started = 1.7e9 if folder is other_name else 1.8e9
        (folder / "environment.json").write_text(json.dumps({"started_at": started}))
    assert standing_row([*folders, other_name]).val_bpb == 1.23


def test_of_several_codes_the_one_at_hand_stands_for_the_seed_else_the_last(tmp_path: Path) -> None:
    for seed, codes in enumerate((("a", "b", "b", "a"), ("a", own_code(), "b"), ("a", own_code(), own_code(), "b"))):
        scores = [1.20 + number / 100 for number in range(len(codes))]
        folders = [
            write_run(tmp_path, Config(), bpb, seed, attempt=number, code=code)
            for number, (bpb, code) in enumerate(zip(scores, codes, strict=True), start=1)
        ]
        wanted = codes.index(own_code() if own_code() in codes else codes[-1])
        row = standing_row(folders)
        assert row.val_bpb == scores[wanted] and len(row.faults) == len(codes) - 1
        assert any("is of other code than" in said for said in row.faults)


def test_a_run_without_its_cores_under_a_clock_does_not_count(tmp_path: Path) -> None:
    busy: dict[str, Any] = {"core_share": 0.1, "cpu_seconds": 60.0}
    row = row_of(write_run(tmp_path, Config(), 1.25, 1, budget_train_seconds=600.0, **busy))
    assert row.state == "starved" and "had 0.10 of its cores while training" in row.reason and not row.counts
    assert row.cpu_seconds == 60.0
    # Without a clock the steps were made all the same, and a run that had its cores is as good as any.
    assert row_of(write_run(tmp_path, Config(), 1.24, 2, **busy)).counts
    assert row_of(write_run(tmp_path, Config(), 1.24, 4, budget_train_seconds=6000.0, **busy)).counts
    assert row_of(write_run(tmp_path, Config(), 1.24, 3, budget_train_seconds=600.0, core_share=0.97)).counts


def test_a_run_without_its_cores_is_replaced_by_any_other_attempt(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"budget_train_seconds": 600.0}
    busy = write_run(tmp_path, Config(), 1.25, 1, core_share=0.3, **changes)
    good = write_run(tmp_path, Config(), 1.24, 1, attempt=2, **changes)
    assert standing_row([busy, good]).path == good


def test_variants_at_equal_seconds_are_judged_by_the_runs_that_had_their_cores() -> None:
    lost = RunRow("a", "a", 4, "starved", "busy", val_bpb=1.30)
    variant = Variant("a", "a", (*(RunRow("a", "a", i, val_bpb=1.2 + i / 1000) for i in range(3)), lost))
    assert len(variant.scores("final")) == 3 and variant.lost == [lost]


def test_where_an_attempt_names_no_start_the_numbers_say_the_order_and_no_name_does(tmp_path: Path) -> None:
    first = write_run(tmp_path, with_lr(0.02), 1.23)
    (first / "environment.json").write_text('{"started_at": 1.8e9}')
    # Of version 0.2.0, which noted no start.
    second = write_run(tmp_path, with_lr(0.02), 1.22, attempt=2)
    assert by_age([second, first]) == [first, second]
    one, other = (
        write_run(tmp_path / "n", replace(with_lr(0.02), name=name), bpb) for name, bpb in (("a", 1.2), ("b", 1.3))
    )
    before = standing_row([one, other]).val_bpb
    one.parent.rename(one.parent.with_name(f"z-{one.parent.name[-8:]}"))
    renamed = tmp_path / "n" / f"z-{one.parent.name[-8:]}" / "seed1"
    assert standing_row([renamed, other]).val_bpb == before
