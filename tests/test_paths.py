"""Processes that golf starts import the golf that started them, also in another checkout."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from golf.lab.corpora.own_text import OwnDataset
from golf.paths import import_variables
from golf.run.result import OK, read_result
from tests.support import golf_train, tiny_overrides


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder with another package named golf, as a second checkout is."""
    (tmp_path / "elsewhere" / "golf").mkdir(parents=True)
    (tmp_path / "elsewhere" / "golf" / "__init__.py").write_text("raise SystemExit('another golf')")
    return tmp_path / "elsewhere"


def test_a_new_python_imports_this_golf_in_another_checkout(elsewhere: Path) -> None:
    command = [sys.executable, "-m", "golf.bits"]
    assert subprocess.run(command, cwd=elsewhere, capture_output=True).returncode != 0, "what has to be prevented"
    done = subprocess.run(command, cwd=elsewhere, env={**os.environ, **import_variables()}, capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("how", [["-m", "seed=1,2"], ["launch.nproc=2"]])
def test_runs_in_processes_of_their_own_use_this_golf(
    how: list[str], elsewhere: Path, tiny: OwnDataset, runs: Path
) -> None:
    done = golf_train(*tiny_overrides(tiny), *how, cwd=elsewhere)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {read_result(path).state for path in runs.glob("4l*/seed*/result.json")} == {OK}
