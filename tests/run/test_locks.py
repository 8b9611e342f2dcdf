"""Claims: one holder at a time, and none that outlives its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from golf.run.locks import is_claimed, try_claim
from tests.support import ROOT

HOLD = "import sys, time; from golf.run.locks import try_claim; c = try_claim('x'); print(c is not None, flush=True); "


def hold(code: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", HOLD + code], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout and process.stdout.readline() == "True\n"
    return process


def test_a_claim_has_one_holder_and_leaves_no_file(runs: Path) -> None:
    claim = try_claim("x")
    assert claim and try_claim("x") is None and is_claimed("x") and not is_claimed("y")
    claim.release()
    assert not is_claimed("x") and list((runs / "claims").iterdir()) == []
    again = try_claim("x")
    assert again
    again.release()


def test_a_killed_holder_frees_its_claim(runs: Path) -> None:
    process = hold("time.sleep(60)")
    assert try_claim("x") is None and is_claimed("x")
    process.kill()
    process.communicate()
    assert not is_claimed("x")  # the file is still there
    claim = try_claim("x")
    assert claim
    claim.release()


def test_a_claim_lasts_as_long_as_a_process_that_inherited_it(runs: Path) -> None:
    """A sweep that is killed while its run goes on must not make room for a second one of the same."""
    child = "[sys.executable, '-c', 'import sys; print(1, flush=True); sys.stdin.read()']"
    code = (
        f"import subprocess; p = subprocess.Popen({child}, pass_fds=[c.descriptor], stdin=subprocess.PIPE); "
        "print(p.pid, flush=True); time.sleep(60)"
    )
    process = hold(code)
    assert process.stdout
    pid = max(int(process.stdout.readline()), int(process.stdout.readline()))
    os.kill(pid, signal.SIGSTOP)  # it reads from its dead parent: keep it from ending by itself
    process.kill()
    process.wait()
    assert try_claim("x") is None
    os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 20
    while (claim := try_claim("x")) is None:
        assert time.monotonic() < until
    claim.release()
    process.communicate()


def test_many_at_once_never_hold_the_same(runs: Path) -> None:
    """Claimed and released over and over: at no time are there two holders, and everyone gets through."""
    inside: list[int] = []

    def take(number: int) -> int:
        taken = 0
        while taken < 50:
            if claim := try_claim("x"):
                inside.append(number)
                assert inside == [number]
                inside.remove(number)
                taken += 1
                claim.release()
        return taken

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(take, range(8))) == [50] * 8
    assert list((runs / "claims").iterdir()) == []
