"""Behaviour of golf's processes: end with the parent, stop on signals, keep freed memory for training on a CPU."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

# Slurm sends USR2 as its notice before a time limit. USR1 is left out because NCCL uses it.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)
# These numbers are from Linux's prctl.h and glibc's malloc.h, as Python has no names for them.
PR_SET_PDEATHSIG = 1
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4


class Interrupted(BaseException):
    """The exception that a stop signal raises in the main thread. `number` is the signal's."""

    def __init__(self, number: int):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Raise `Interrupted` in the block on the first stop signal. A second one ends the process at once."""
    # Python sets signal handlers in the main thread only.
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _: FrameType | None) -> None:
        for s in STOP_SIGNALS:
            signal.signal(s, signal.SIG_DFL)
        raise Interrupted(number)

    before = {number: signal.signal(number, stop) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def die_with_parent() -> None:
    """Ask the kernel (Linux) to send SIGTERM when the parent ends, however it ends.

    torchrun gives every worker its own session, so killing torchrun's process group leaves the workers alive.
    """
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    # A parent that ended before the call sends nothing any more.
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def own_family() -> set[str]:
    """Return the process ids of this process and its ancestors, such as a sweep's."""
    family, pid = {str(os.getpid())}, os.getppid()
    while pid > 1 and str(pid) not in family:
        family.add(str(pid))
        try:
            # The name in brackets may hold spaces; the state and the parent follow it.
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            break
    return family


def tune_allocator() -> None:
    """Make glibc keep freed memory in the process instead of mapping and faulting every large temporary anew.

    Call this before the first tensor is made. docs/benchmarks.md has the time that it saves.
    """
    # With this variable torch asks the kernel for huge pages behind large tensors.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        # Memory that goes back to the kernel has to be mapped and zeroed again: so nothing is mapped on its own, and
        # the heap is never trimmed.
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)
        libc.mallopt(M_TOP_PAD, 128 << 20)
