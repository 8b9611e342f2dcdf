"""Two hundred mistakes and what golf answers: one sentence, exit status 2, and nothing left behind.

mistakes.txt has a mistake a line: the words that were typed, a tab, and how the answer begins.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.support import golf_command, golf_main

SMALL = ("schedule.iterations=2", "budget.train_seconds=0", "scale=laptop")
LINES = Path(__file__).with_name("mistakes.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("program", ["golf train", "golf train -m", "golf"])
def test_each_is_answered_in_a_sentence(program: str, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs.parent)
    asked = [line.split("\t") for line in LINES]
    wrong = []
    for given, words, answer in asked:
        if given != program:
            continue
        typed = shlex.split(words)
        if program == "golf":
            done = golf_command(*typed)
        else:
            done = golf_main(*(("-m",) if program.endswith("-m") else ()), *SMALL, *typed, "--dry-run")
        is_answer = done.stderr.startswith(f"error: {answer}") and done.stderr.count("\n") == 1
        if done.returncode != 2 or not is_answer or "Traceback" in done.stdout:
            wrong.append((words, done.returncode, done.stderr))
    assert not wrong
    assert len(asked) >= 200 and not list(runs.glob("*/seed*"))
