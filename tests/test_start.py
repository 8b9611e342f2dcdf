"""The start of golf/train.py, before and while it imports: Ctrl-C and a missing package leave no traceback."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

SCRIPT, MODULE = [str(ROOT / "golf/train.py")], ["-m", "golf.train"]
# A suite in the background may ignore the signal, and so would this process.
INTERRUPTED = """import os, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
os.kill(os.getpid(), signal.SIGINT)
time.sleep(5)
"""
MISSING = "raise ModuleNotFoundError('No module named hydra', name='hydra')\n"
FAULTY = "import golf.nowhere\n"


def started(how: list[str], hydra: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Start golf/train.py in an environment whose `hydra` has this text."""
    (folder / "hydra.py").write_text(hydra)
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    return subprocess.run([sys.executable, *how, "seed=1"], env=environment, capture_output=True, text=True, cwd=folder)


@pytest.mark.parametrize("how", [SCRIPT, MODULE])
def test_what_ends_the_imports_is_said_in_a_sentence_or_not_at_all(how: list[str], tmp_path: Path) -> None:
    done = started(how, INTERRUPTED, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
    done = started(how, MISSING, tmp_path)
    assert done.returncode == 1 and done.stderr.startswith("error: The package hydra is not installed for ")
    assert done.stderr.count("\n") == 1
    # A module of golf that is missing is a fault in golf.
    assert "Traceback" in started(how, FAULTY, tmp_path).stderr


def test_help_comes_before_the_imports(tmp_path: Path) -> None:
    (tmp_path / "hydra.py").write_text(MISSING)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, *SCRIPT, "--help"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("python golf/train.py [flag") and not done.stderr
