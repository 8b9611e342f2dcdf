"""Stopped and killed runs leave a state in their folder and no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from golf.lab.corpora.own_text import OwnDataset
from golf.run.result import read_result
from tests.support import ROOT, only_run, tiny_overrides

WAIT_SECONDS = 900


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < until, f"no {what} within {WAIT_SECONDS} s"
        time.sleep(0.05)


def command_of(process: int) -> bytes:
    return Path(f"/proc/{process}/cmdline").read_bytes()


def processes_of(folder: Path) -> list[int]:
    """Return the processes whose command line names `folder` (Linux)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:  # it has just ended
            continue
    return found


@contextmanager
def endless_run(tiny: OwnDataset, runs: Path, nproc: int) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Yield a run that never ends, after its third step. It is killed at the end if the test left it alive."""
    overrides = [
        *tiny_overrides(tiny),
        "schedule.iterations=10000000",
        f"launch.nproc={nproc}",
        "eval.val_loss_every=0",
    ]
    command = [sys.executable, "golf/train.py", *overrides]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_for("training", lambda: any("step:3/" in p.read_text() for p in runs.glob("*/seed*/train.log")))
        yield process, only_run(runs)
    finally:
        process.kill()
        process.communicate()
        for pid in processes_of(runs):
            os.kill(pid, signal.SIGKILL)


def wait_for_the_end(folder: Path) -> None:
    wait_for("end of all processes", lambda: not processes_of(folder))


def assert_nothing_is_left(folder: Path) -> None:
    """Check an orderly end: no process and no temporary file is left. A killed writer may leave its temporary file."""
    wait_for_the_end(folder)
    assert not [p.name for p in folder.rglob(".*")]


@pytest.mark.parametrize(
    ("number", "nproc"),
    [
        (signal.SIGINT, 1),
        pytest.param(signal.SIGTERM, 2, marks=pytest.mark.slow),
    ],
)
def test_a_stop_signal_leaves_an_interrupted_run(
    tiny: OwnDataset, runs: Path, nproc: int, number: signal.Signals
) -> None:
    with endless_run(tiny, runs, nproc) as (process, folder):
        process.send_signal(number)
        out, err = process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == 130
        result = read_result(folder / "result.json")
        assert (result.state, result.reason) == ("interrupted", f"stopped by {number.name}")
        assert b"interrupted" in out and b"Traceback" not in out + err
        assert result.steps >= 1 and result.train_seconds > 0 and result.machine
        assert result.tokens_seen == 512 * result.steps
        assert b"The same command starts over" in out
        assert not (folder / "artifact.golf").exists()
        assert_nothing_is_left(folder)


@pytest.mark.slow
@pytest.mark.parametrize("nproc", [1, 2])
def test_killing_the_command_leaves_no_process_and_no_result(tiny: OwnDataset, runs: Path, nproc: int) -> None:
    with endless_run(tiny, runs, nproc) as (process, folder):
        process.kill()
        process.wait()
        wait_for_the_end(folder)
        if (folder / "result.json").exists():  # a rank that lived long enough to say why it stopped
            assert read_result(folder / "result.json").state in ("interrupted", "crashed")


@pytest.mark.slow
def test_killing_torchrun_leaves_no_rank_and_is_a_crash(tiny: OwnDataset, runs: Path) -> None:
    with endless_run(tiny, runs, 2) as (process, folder):
        (agent,) = (p for p in processes_of(folder) if b"golf.launch.agent" in command_of(p))
        os.kill(agent, signal.SIGKILL)
        out, err = process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == 1 and b"crashed" in out and b"Traceback" not in out + err
        wait_for_the_end(folder)
        assert read_result(folder / "result.json").state == "crashed"  # whatever a rank said after torchrun's end


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_dies_is_a_crash(tiny: OwnDataset, runs: Path, victim: int) -> None:
    with endless_run(tiny, runs, 2) as (process, folder):
        workers = [p for p in processes_of(folder) if b"golf.launch.worker" in command_of(p)]
        workers = [p for p in workers if b"RANK=%d\0" % victim in b"\0" + Path(f"/proc/{p}/environ").read_bytes()]
        ranks = [p for p in workers if b"LOCAL_RANK=" in Path(f"/proc/{p}/environ").read_bytes()]
        os.kill(ranks[0], signal.SIGKILL)
        out, err = process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == 1
        result = read_result(folder / "result.json")
        assert result.state == "crashed" and result.reason.startswith(f"rank {victim} was killed by SIGKILL")
        assert b"crashed" in out and b"Traceback" not in out + err
        wait_for_the_end(folder)


@pytest.mark.slow
def test_a_sweep_stops_when_a_job_is_interrupted(tiny: OwnDataset, runs: Path) -> None:
    endless = [*tiny_overrides(tiny), "schedule.iterations=10000000", "eval.val_loss_every=0"]
    overrides = [*endless, "seed=1,2", "launch.jobs=1"]
    process = subprocess.Popen(
        [sys.executable, "golf/train.py", "-m", *overrides], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        wait_for("training", lambda: any("step:3/" in p.read_text() for p in runs.glob("*/seed1/train.log")))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=WAIT_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 130
    assert [p.name for p in runs.glob("*/seed*")] == ["seed1"]
    assert read_result(only_run(runs) / "result.json").state == "interrupted"


HANGS_UP = """
import contextlib, os, signal, sys
from golf.launch.process import Interrupted, handled, interruptible

def hang_up(*_):
    os.kill(os.getpid(), signal.SIGHUP)

block, times = sys.argv[1:]
with contextlib.suppress(Interrupted), interruptible():
    with handled(lambda *_: None) if block == "handled" else interruptible():
        for _ in range(int(times)):
            hang_up()
for _ in range(3):
    hang_up()
sys.exit(130)
"""


@pytest.mark.parametrize("block", ["handled", "interruptible"])
@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_lost_terminal_takes_no_exit_status_away(block: str, times: int) -> None:
    """SIGHUP comes again behind the block that has handled it. A process that had none before dies of it."""
    command = [sys.executable, "-c", HANGS_UP, block, str(times)]
    # Under nohup the whole suite ignores it, and so would the process.
    done = subprocess.run(command, cwd=ROOT, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
    assert done.returncode == (130 if times else -signal.SIGHUP)
