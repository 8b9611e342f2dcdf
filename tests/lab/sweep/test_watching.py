"""`golf status --watch` ends when the sweep has ended, and not in a moment without a run."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from golf.commands import status_command
from golf.lab.sweep.record import read_record, write_record
from golf.run.locks import try_lock
from golf.run.sweeps import sweep_lock_name
from tests.lab.report.runs import with_lr, write_run, write_sweep
from tests.support import golf_command

NAME = "lr-1234abcd"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_command, "SECONDS_BETWEEN", 0.1)


def test_the_watch_goes_on_between_rounds_while_the_sweep_is_at_work(runs: Path) -> None:
    # One round has ended and the next one is not in the record yet, as while verdicts are computed.
    write_run(runs, with_lr(0.04), 1.1, 1)
    write_sweep(runs, NAME, [(["optim.matrix_lr=0.04"], with_lr(0.04), 1)])
    lock = try_lock(sweep_lock_name(NAME))
    assert lock
    ended: list[int] = []
    watch = threading.Thread(target=lambda: ended.append(status_command.main([NAME, "--watch"])))
    watch.start()
    time.sleep(1.5)
    assert watch.is_alive()
    write_run(runs, with_lr(0.04), 1.1, 2)
    record = read_record(NAME)
    assert record
    record.runs.append({**record.runs[0], "seed": 2})
    write_record(record)
    time.sleep(0.5)
    assert watch.is_alive()
    lock.release()
    watch.join(60)
    assert ended == [0]


def test_the_status_says_whether_all_runs_are_ok(runs: Path) -> None:
    write_run(runs, with_lr(0.04), 1.1, 1)
    write_sweep(runs, NAME, [(["tech=[smear]"], with_lr(0.04), seed) for seed in (1, 2)])
    done = golf_command("status", NAME, "--watch")
    assert done.returncode == 1 and "the same command goes on with it" in done.stderr
    assert "not started" in done.stdout
    write_run(runs, with_lr(0.04), 1.1, 2, state="diverged")
    done = golf_command("status", NAME, "--watch")
    assert done.returncode == 1 and done.stderr == ""


def test_brackets_of_lists_are_shown(runs: Path) -> None:
    write_run(runs, with_lr(0.04), 1.1, 1)
    write_sweep(runs, NAME, [([f"tech=[{name}]"], with_lr(0.04), i) for i, name in enumerate(("smear", "xsa"), 1)])
    assert "tech=[smear]" in golf_command("status", NAME, "--watch").stdout
