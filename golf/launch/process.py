"""Signals that stop golf's processes, and their ancestors."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from golf.system import parents

# HUP comes when a terminal or an ssh line ends. Slurm sends USR2 as its notice before a time limit. USR1 is left out
# because NCCL uses it.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2, signal.SIGHUP)


class Interrupted(BaseException):
    """The exception that a stop signal raises in the main thread. `number` is the signal's."""

    def __init__(self, number: int):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


@contextlib.contextmanager
def handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Call `handler` for stop signals in the block. A SIGHUP that nohup lets be ignored stays ignored.

    `handler` gets SIGHUP once, and the process ignores it from then on. A lost terminal sends it more than once, by the
    shell and by the kernel, and the last one may come behind the block, where it would take the exit status away.
    """
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    numbers = [number for number in STOP_SIGNALS if number != signal.SIGHUP or not ignored]

    def handle(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            signal.signal(number, signal.SIG_IGN)
        handler(number, frame)

    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, earlier)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Raise `Interrupted` in the block on the first stop signal. A second one ends the process at once."""
    # Python sets signal handlers in the main thread only.
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _: FrameType | None) -> None:
        for s in STOP_SIGNALS:
            signal.signal(s, signal.SIG_IGN if s == signal.SIGHUP else signal.SIG_DFL)
        raise Interrupted(number)

    with handled(stop):
        yield


def own_family() -> set[str]:
    """Return the process ids of this process and its ancestors, such as a sweep's."""
    above, family, pid = parents(), {str(os.getpid())}, os.getppid()
    while pid > 1 and str(pid) not in family:
        family.add(str(pid))
        pid = above.get(pid, 0)
    return family
