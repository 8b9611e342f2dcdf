"""Ending processes that other people's code has started (Linux; elsewhere they are left to themselves)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent ends, instead of the system's first process."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def kill_descendants(pid: int) -> None:
    """Kill all children of `pid`, their children and so on."""
    for child in descendants(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # not ours
            os.waitpid(child, 0)


def descendants(pid: int) -> list[int]:
    """Children of `pid` and theirs, each after its own."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = path.read_text().rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(path.parent.name))

    def below(parent: int) -> list[int]:
        return [pid for child in children.get(parent, []) for pid in (*below(child), child)]

    return below(pid)
