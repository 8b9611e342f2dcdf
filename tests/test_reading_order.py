"""The files that docs/architecture.md names for a reader of one run are few, and the run executes them."""

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from golf.run.result import read_result
from golf.submission.code_bytes import code_bytes
from golf.submission.script.bundle import Bundle
from tests.support import ROOT, OwnDataset, compose, only_run, tiny_overrides

FILE = re.compile(r"^\d+\. `(golf/[\w/]+\.py)`", re.MULTILINE)
MOST_FILES, MOST_LINES = 35, 5_000
EXPORTER = Path(inspect.getfile(Bundle)).parent


def in_reading_order() -> list[Path]:
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("## One run, in reading order\n")[2].partition("\n## ")[0]
    return [ROOT / name for name in FILE.findall(section)]


def test_one_run_is_read_in_few_files() -> None:
    files = in_reading_order()
    assert files and len(set(files)) == len(files) <= MOST_FILES
    assert sum(len(path.read_text().splitlines()) for path in files) <= MOST_LINES


def test_a_run_executes_the_files_to_read_and_its_rank_no_exporter(
    tiny: OwnDataset, runs: Path, tmp_path: Path
) -> None:
    notes, overrides = tmp_path / "notes.json", tiny_overrides(tiny)
    command = [sys.executable, str(ROOT / "tests/executed.py"), str(notes), str(ROOT / "golf/train.py"), *overrides]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    called = {part: {Path(name) for name in names} for part, names in json.loads(notes.read_text()).items()}
    assert not set(in_reading_order()) - called["run"]
    # The number is handed to the rank, which makes no script to count it.
    assert not [path for path in called["rank"] if path.is_relative_to(EXPORTER)]
    assert read_result(only_run(runs) / "result.json").code_bytes == code_bytes(compose(overrides))
