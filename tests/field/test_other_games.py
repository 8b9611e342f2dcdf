"""Logs of related games are named and have no score; a log of this game that looks like one keeps its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from golf.run.result import OK
from tests.field.imports import imported, log

NANOCHAT = """Step 00000 | Validation bpb: 3.169725
step 00000/16704 (0.00%) | loss: 10.397340 | lrm: 1.00 | dt: 26087.22ms | tok/sec: 10,048 | mfu: 0.00 | epoch: 1
step 16703/16704 (99.99%) | loss: 2.417931 | lrm: 0.00 | dt: 645.43ms | tok/sec: 812,305 | mfu: 50.77 | epoch: 3
"""
AUTORESEARCH = """step 00403 (99.8%) | loss: 3.354201 | lrm: 0.00 | dt: 753ms | tok/sec: 86,999 | remaining: 0s
---
val_bpb:          1.197368
training_seconds: 300.2
mfu_percent:      4.38
total_tokens_M:   26.5
num_steps:        404
"""
MODDED = """step:0/1750 val_loss:10.8258 train_time:0ms step_avg:0.00ms
step:1750/1750 val_loss:3.2781 train_time:201000ms step_avg:114.86ms
"""


@pytest.mark.parametrize(
    ("text", "game"), [(NANOCHAT, "nanochat"), (AUTORESEARCH, "autoresearch"), (MODDED, "modded-nanogpt")]
)
def test_another_game_is_called_by_its_name_and_has_no_score(text: str, game: str, tmp_path: Path) -> None:
    (run,) = imported(tmp_path, {"run.log": text}).runs
    assert run.state == "other game" and f"a log of {game}" in run.reason
    assert not run.has_score and not [name for name in run.figures if name.endswith("_bpb")]


def test_a_fork_that_plays_this_game_is_no_other_game(tmp_path: Path) -> None:
    (run,) = imported(tmp_path, {"run.log": log() + "total_tokens_M:   26.5\n"}).runs
    assert run.state == OK and run.bpb == pytest.approx(1.2)


def test_the_log_of_a_kaggle_notebook_is_read_as_it_was_printed(tmp_path: Path) -> None:
    lines = log().splitlines(keepends=True)
    # Some entries have several lines, and the file is one list.
    texts = ["".join(lines[:2]), *lines[2:]]
    entries = [json.dumps({"stream_name": "stdout", "time": i, "data": text}) for i, text in enumerate(texts)]
    (run,) = imported(tmp_path, {"k.log": "[" + "\n,".join(entries) + "\n]"}).runs
    (plain,) = imported(tmp_path / "plain", {"k.log": log()}).runs
    assert {name: figure.value for name, figure in run.figures.items()} == {
        name: figure.value for name, figure in plain.figures.items()
    }


def test_the_last_line_of_a_modal_app_is_its_score(tmp_path: Path) -> None:
    steps = "step:500/500 val_loss:2.3642 val_bpb:1.5002 train_time:45461ms step_avg:90.92ms\n"
    (run,) = imported(tmp_path, {"modal.log": f"{steps}🏁 BPB: 1.5167\n📦 Size: 14.41 MB\n"}).runs
    assert run.state == OK and run.bpb == 1.5167


def test_a_score_before_test_time_training_is_not_trained(tmp_path: Path) -> None:
    text = "step:5000/5000 train_loss:2.5\nPre-TTT BPB:  1.5188\nPost-TTT BPB: 1.1070\n"
    (run,) = imported(tmp_path, {"modal.log": text}).runs
    assert run.value("ttt_bpb") == 1.1070 and 1.5188 not in [s.val_bpb for s in run.scores if s.kind == "ttt"]
