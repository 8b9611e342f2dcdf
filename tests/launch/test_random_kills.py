"""SIGKILL a random process of a run at random moments: no orphan, no false result, and the next start is clean.

GOLF_KILLS sets how many kills (50 take about ten minutes on two cores).
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from golf.artifact.container import load
from golf.lab.corpora.own_text import OwnDataset
from golf.run.result import OK, Result, read_result
from tests.launch.test_processes import WAIT_SECONDS, processes_of, wait_for
from tests.support import ROOT, tiny_overrides

KILLS = int(os.environ.get("GOLF_KILLS", "2"))
STEPS = 40


def start(overrides: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "golf/train.py", *overrides]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill_one(chance: random.Random, command: subprocess.Popen[bytes], runs: Path, whole_seconds: float) -> str:
    """Kill one of the run's processes at a random moment of its life. Return its command line."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        command.wait(chance.uniform(0, whole_seconds))
    victim = chance.choice([command.pid, *processes_of(runs)])
    try:
        name = Path(f"/proc/{victim}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        os.kill(victim, signal.SIGKILL)
    except OSError:
        return "ended before"
    return name


def results(runs: Path) -> dict[Path, Result | None]:
    """Return every run folder with its result, if it has one."""
    folders = [path.parent for path in runs.glob("*/*/config.json")]
    return {f: read_result(f / "result.json") if (f / "result.json").exists() else None for f in folders}


def steps_logged(folder: Path) -> int:
    log = folder / "metrics.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return max((int(found[1]) for line in lines if (found := re.search(r'"step": (\d+)', line))), default=0)


def assert_says_no_more_than_was_done(folder: Path, result: Result | None, undisturbed: Result) -> None:
    if result is None or result.state != OK:
        assert result is None or (result.final_score is None and result.steps <= steps_logged(folder))
        return
    assert result.final_score and undisturbed.final_score
    assert (result.final_score.val_bpb, result.steps) == (undisturbed.final_score.val_bpb, STEPS)
    assert (folder / "artifact.golf").stat().st_size == result.artifact_bytes == undisturbed.artifact_bytes
    load(folder / "artifact.golf")


@pytest.mark.slow
@pytest.mark.exhaustive
def test_two_ranks_killed_at_random_moments_leave_no_false_result(tiny: OwnDataset, runs: Path) -> None:
    # In bf16, whose checkpoints have tensors of two dtypes; most kills are followed by a resume.
    kept = ["model.compute_dtype=bf16", "launch.checkpoint_seconds=0.02"]
    overrides = [*tiny_overrides(tiny), f"schedule.iterations={STEPS}", "launch.nproc=2", *kept]
    began = time.monotonic()
    assert start(overrides).wait(WAIT_SECONDS) == 0
    whole_seconds = time.monotonic() - began
    (undisturbed,) = results(runs).values()
    assert undisturbed is not None and undisturbed.state == OK

    chance, victims = random.Random(20), []
    for _ in range(KILLS):
        command = start(overrides)
        victims.append(kill_one(chance, command, runs, whole_seconds))
        command.wait(WAIT_SECONDS)
        wait_for("end of all processes", lambda: not processes_of(runs))
        for folder, result in results(runs).items():
            assert_says_no_more_than_was_done(folder, result, undisturbed)
    assert any(victim != "ended before" for victim in victims)

    assert start(overrides).wait(WAIT_SECONDS) == 0
    last = max(results(runs), key=lambda folder: folder.stat().st_ctime)
    assert_says_no_more_than_was_done(last, read_result(last / "result.json"), undisturbed)
    assert read_result(last / "result.json").state == OK
