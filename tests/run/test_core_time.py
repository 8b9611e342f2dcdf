"""CPU seconds and waits for a core, beside the wall clock and a competitor on the same core."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from golf.run.core_time import LEAST_SHARE, CoreMeter, CoreTime, lacked_cores
from golf.system import core_waits, is_linux

ONLY_LINUX = pytest.mark.skipif(not is_linux() or not core_waits(), reason="the system tells no waiting times")
SECONDS = 0.6


def work(seconds: float) -> float:
    """Keep one core busy and return the seconds of wall time that it took."""
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        pass
    return time.perf_counter() - start


@contextlib.contextmanager
def competitors(count: int) -> Iterator[None]:
    """Run endless loops beside this thread on one core, within the block."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        # Each has to be at work, and not still importing.
        time.sleep(0.3)
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
        os.sched_setaffinity(0, cores)


@ONLY_LINUX
def test_a_busy_thread_has_a_core_or_waits_for_one() -> None:
    meter = CoreMeter()
    meter.start()
    wall = work(SECONDS)
    spent = meter.stop()
    assert spent.cpu + spent.waited == pytest.approx(wall, rel=0.15)


@ONLY_LINUX
def test_a_competitor_halves_the_share() -> None:
    meter = CoreMeter()
    with competitors(3):
        meter.start()
        wall = work(2 * SECONDS)
        spent = meter.stop()
    assert spent.share is not None and spent.share < 0.5 < LEAST_SHARE
    assert spent.cpu + spent.waited == pytest.approx(wall, rel=0.15)
    assert "of its cores while training" in lacked_cores(spent.share, "training")


@ONLY_LINUX
def test_threads_are_added_up_and_a_thread_that_sleeps_does_not_wait() -> None:
    meter, sleeper = CoreMeter(), threading.Thread(target=time.sleep, args=(SECONDS,))
    meter.start()
    sleeper.start()
    wall = work(SECONDS)
    sleeper.join()
    assert sum(vars(meter.stop()).values()) == pytest.approx(wall, rel=0.2)


def test_a_meter_goes_on_from_what_was_spent_before_and_stands_between() -> None:
    meter = CoreMeter(CoreTime(10.0, 5.0))
    assert meter.stop() == CoreTime(10.0, 5.0)
    meter.start()
    work(0.05)
    first = meter.stop()
    work(0.2)
    assert meter.stop() == first and 10.0 < first.cpu < 10.2 and first.waited >= 5.0


def test_shares() -> None:
    assert CoreTime().share is None and CoreTime(3.0, 1.0).share == 0.75
    assert not lacked_cores(None, "training") and not lacked_cores(LEAST_SHARE, "training")
    assert "had 0.10 of its cores while scoring" in lacked_cores(0.1, "scoring")
