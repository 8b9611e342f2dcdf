"""Locks: one holder at a time, and none that outlives its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from golf.run.locks import is_locked, try_lock
from tests.support import ROOT

HOLD = "import sys, time; from golf.run.locks import try_lock; c = try_lock('x'); print(c is not None, flush=True); "


def hold(code: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", HOLD + code], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout and process.stdout.readline() == "True\n"
    return process


def test_a_lock_has_one_holder_and_leaves_no_file(runs: Path) -> None:
    lock = try_lock("x")
    assert lock and try_lock("x") is None and is_locked("x") and not is_locked("y")
    lock.release()
    assert not is_locked("x") and list((runs / "locks").iterdir()) == []
    again = try_lock("x")
    assert again
    again.release()


def test_a_folder_of_several_users_has_locks_for_all_of_them(runs: Path) -> None:
    """The first user's umask once kept every other user from starting any run."""
    runs.mkdir(exist_ok=True)
    runs.chmod(0o2777)
    lock = try_lock("x")
    assert lock and (runs / "locks").stat().st_mode & 0o7777 == 0o2777
    lock.release()


def test_a_full_disk_refuses_no_lock(runs: Path) -> None:
    """No file may grow here, as on a full disk; an empty one can be made."""
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); "
    code = limited + "from golf.run.locks import is_locked, try_lock; lock = try_lock('x'); print(is_locked('x'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "True\n", done.stderr


def test_a_killed_holder_frees_its_lock(runs: Path) -> None:
    process = hold("time.sleep(60)")
    assert try_lock("x") is None and is_locked("x")
    process.kill()
    process.communicate()
    assert not is_locked("x")  # the file is still there
    lock = try_lock("x")
    assert lock
    lock.release()


def test_a_lock_lasts_as_long_as_a_process_that_inherited_it(runs: Path) -> None:
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
    assert try_lock("x") is None
    os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 600
    while (lock := try_lock("x")) is None:
        assert time.monotonic() < until
    lock.release()
    process.communicate()


def test_many_at_once_never_hold_the_same(runs: Path) -> None:
    """Locked and released over and over: at no time are there two holders, and everyone gets through."""
    inside: list[int] = []

    def take(number: int) -> int:
        taken = 0
        while taken < 50:
            if lock := try_lock("x"):
                inside.append(number)
                assert inside == [number]
                inside.remove(number)
                taken += 1
                lock.release()
        return taken

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(take, range(8))) == [50] * 8
    assert list((runs / "locks").iterdir()) == []


def test_a_question_about_a_lock_never_keeps_a_process_from_taking_it(runs: Path) -> None:
    """`golf status` and the board ask again and again. A start that got no lock would be refused or start over."""
    code = "from golf.run.locks import is_locked; print(1, flush=True)\nwhile True: is_locked('x')"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    asking = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) for _ in "ab"]
    for process in asking:
        assert process.stdout and process.stdout.readline()
    try:
        for _ in range(1000):
            lock = try_lock("x")
            assert lock
            # Released without removing the file, as by a killed holder: then there is a file to ask about.
            os.close(lock.descriptor)
    finally:
        for process in asking:
            process.kill()
            process.communicate()
