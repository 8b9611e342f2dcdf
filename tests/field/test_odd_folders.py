"""A damaged, deep, endless, linked or odd file of a submission or a run ends in a sentence, never in a traceback."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from tests.field.folders import write
from tests.odd_files import FILES, SECRET, seconds
from tests.support import Done, FinishedRun, golf_command

PLACES = (
    "train_gpt.py",
    "submission.json",
    "README.md",
    "train_seed42.log",
    "requirements.txt",
    "final_model.int8.ptz",
)
WHOLE = [(place, kind) for place in PLACES for kind in FILES]
# A third of all pairs; every kind and every file is among them.
WHOLE = sorted(
    {
        *random.Random(6).sample(WHOLE, 50),
        *zip(PLACES * 5, FILES, strict=False),
        ("train_gpt.py", "pipe"),
        ("submission.json", "brackets"),
    }
)
SAMPLE = set(random.Random(4).sample(WHOLE, 3)) | {("train_gpt.py", "pipe"), ("submission.json", "brackets")}
OF_RUNS = [(place, kind) for place in ("artifact.golf", "final_model.safetensors", "config.json") for kind in FILES]
OF_RUNS = random.Random(5).sample(OF_RUNS, 12)


def check(done: Done) -> None:
    """Tell whether a command has ended with a table or with one sentence."""
    assert "Traceback" not in done.stderr and SECRET not in done.stdout, done
    assert done.returncode in (0, 1) or (done.returncode == 2 and done.stderr.count("\n") == 1), done


@pytest.mark.parametrize(
    ("place", "kind"), [pytest.param(*case, marks=() if case in SAMPLE else pytest.mark.slow) for case in WHOLE]
)
def test_an_odd_file_of_a_submission_is_a_sentence(place: str, kind: str, runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "records/track/mine"
    folder.mkdir(parents=True)
    write(folder)
    (tmp_path / "secret.json").write_text(json.dumps({"name": SECRET, "author": SECRET}))
    (folder / place).unlink(missing_ok=True)
    FILES[kind](folder / place)
    with seconds(60):
        check(golf_command("audit", str(folder)))
        check(golf_command("import", str(folder)))
        check(golf_command("report", "mine"))
        if place == "train_gpt.py":
            check(golf_command("from-env", "--script", str(folder / place)))


@pytest.mark.slow
@pytest.mark.parametrize(("place", "kind"), OF_RUNS)
def test_an_odd_file_of_a_run_is_a_sentence(
    place: str, kind: str, finished_run: FinishedRun, runs: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "a/b/run-00000000/seed1"
    shutil.copytree(finished_run.folder, folder)
    (tmp_path / "a/secret.json").write_text(json.dumps({"name": SECRET}))
    (folder / place).unlink()
    FILES[kind](folder / place)
    with seconds(120):
        check(golf_command("inspect", str(folder)))
        check(golf_command("quant-gap", str(folder), "int8", "--tokens", "512"))
