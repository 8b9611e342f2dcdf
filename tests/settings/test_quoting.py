"""Values in Hydra's quotes come back as they are, and commands in the shell's."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from golf.lab.report.board_run import run_values
from golf.lab.report.study import read_study
from golf.run.folder import RunFolder
from golf.settings.composition import compose
from golf.settings.quoting import quoted, typed
from tests.lab.report.runs import with_lr, write_run, write_sweep
from tests.support import refusal

VALUES = ["plain-1.5e3", "ü", "my data/x", "it's", 'a"b', "C:\\x\\", '\\"', "a,b", "[x", "a=b", "", " a "]


@pytest.mark.parametrize("value", VALUES)
def test_a_quoted_value_composes_to_itself(value: str) -> None:
    assert compose(["scale=laptop", f"note={quoted(value)}"]).note == value


def test_what_the_grammar_cannot_read_is_answered_with_quotes_that_it_can() -> None:
    assert refusal("data.path=data/ü").endswith("""as in 'data.path="data/ü"'.""")
    assert "close every bracket" in refusal("tech=[bigram")
    assert "'.path' in .path=x is no setting" in refusal(".path=x")


@pytest.mark.parametrize(
    ("recorded", "pasted"),
    [
        (
            ["golf train", "-m", "seed=range(1,4)", "note=first look"],
            ["golf", "train", "-m", "seed=range(1,4)", "note=first look"],
        ),
        (
            ["golf/train.py", "tech=[bigram,xsa]", "note=it's"],
            ["python", "golf/train.py", "tech=[bigram,xsa]", "note=it's"],
        ),
        (
            ["golf submit", "-m", "cluster=slurm_h100", "seed=1,2", "hydra/launcher=golf_submit", "hydra/sweeper=golf"],
            ["golf", "submit", "cluster=slurm_h100", "seed=1,2"],
        ),
        ([], []),
    ],
)
def test_a_recorded_command_can_be_pasted_into_a_shell(recorded: list[str], pasted: list[str]) -> None:
    # The shell itself splits what is shown into the words that golf was given.
    words = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {typed(recorded)}"], capture_output=True, text=True, check=True
    )
    assert words.stdout.splitlines() == (pasted or [""])


def test_pages_show_commands_that_can_be_pasted(runs: Path) -> None:
    folder = write_run(runs, with_lr(0.04), 1.1, 1)
    command = ["golf/train.py", "-m", "optim.matrix_lr=0.04", "seed=range(1,4)", "note=first look"]
    environment = json.loads((folder / "environment.json").read_text())
    (folder / "environment.json").write_text(json.dumps({**environment, "command": command}))
    write_sweep(runs, "lr-1234abcd", [(["optim.matrix_lr=0.04"], with_lr(0.04), 1)], command=command)
    shown = "python golf/train.py -m optim.matrix_lr=0.04 'seed=range(1,4)' 'note=first look'"
    assert read_study(["lr-1234abcd"]).command == run_values(RunFolder(folder))["made"]["command"] == shown
