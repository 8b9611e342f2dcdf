"""Facts about this machine and control of processes by the operating system: Linux first, then fallbacks of others.

Everything that is Linux's own is here. Nobody has run golf on a Mac yet; tests patch `sys.platform`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

# These numbers are from Linux's prctl.h and glibc's malloc.h, as Python has no names for them.
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
CGROUP = Path("/sys/fs/cgroup")
PARENT_POLL_SECONDS = 1.0


def is_linux() -> bool:
    """Tell whether this is Linux."""
    return sys.platform.startswith("linux")


def cpu_cores() -> int:
    """Return the cores that this process may use. Containers and taskset often allow fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_name() -> str:
    """Return the model name of the CPU as the system reports it."""
    if sys.platform == "darwin" and (name := _output("sysctl", "-n", "machdep.cpu.brand_string").strip()):
        return name
    return next((v for k, v in _cpuinfo() if k == "model name"), platform.processor() or platform.machine())


def cpu_flags() -> set[str]:
    """Return the extensions of the CPU's instructions by Linux's names; empty elsewhere."""
    return set(next((v for k, v in _cpuinfo() if k == "flags"), "").split())


def memory_bytes() -> int | None:
    """Return the memory that this process may use: the machine's, or less by its container or limit. None: unknown."""
    limits = []
    with contextlib.suppress(OSError, ValueError, AttributeError):
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    if is_linux():
        # The first file is that of cgroups v2, the second that of v1.
        for path in (CGROUP / "memory.max", CGROUP / "memory/memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):
                limits.append(int(path.read_text(encoding="utf-8")))
    # Windows has no module resource.
    with contextlib.suppress(ImportError):
        import resource

        if (limit := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY:
            limits.append(limit)
    return min(limits, default=None)


def free_memory_bytes() -> int | None:
    """Return the bytes of memory that are free for this process, in a container the part that it may use.

    None where only Linux would tell.
    """
    try:
        fields = (line.partition(":") for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines())
        free = {key: int(value.split()[0]) * 1024 for key, _, value in fields}["MemAvailable"]
    except (OSError, ValueError, LookupError):
        return None
    # There may be no control group, or its limit is the word `max`.
    with contextlib.suppress(OSError, ValueError):
        limit, used = (int((CGROUP / name).read_text(encoding="utf-8")) for name in ("memory.max", "memory.current"))
        free = min(free, limit - used)
    return free


def peak_memory_bytes() -> int:
    """Return the most memory that this process has held."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts kibibytes there, and macOS bytes.
    return peak if sys.platform == "darwin" else peak * 1024


def core_waits() -> dict[str, float]:
    """Return the seconds that each thread of this process has waited for a core, by the thread's id.

    Only Linux tells; elsewhere it is empty.
    """
    waits: dict[str, float] = {}
    for path in Path("/proc/self/task").glob("*/schedstat"):
        # A thread may end meanwhile. The second number is its nanoseconds on the run queue.
        with contextlib.suppress(OSError, ValueError, IndexError):
            waits[path.parent.name] = int(path.read_text(encoding="utf-8").split()[1]) / 1e9
    return waits


def die_with_parent() -> None:
    """Send this process SIGTERM when its parent ends, however it ends: by the kernel on Linux, else by a thread.

    torchrun gives every worker its own session, so killing torchrun's process group leaves the workers alive.
    """
    parent = os.getppid()
    if is_linux():
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        # A parent that ended before the call sends nothing any more.
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent ends, so that it finds them. Only Linux can."""
    if is_linux():
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def parents() -> dict[int, int]:
    """Return the parent of every process by its id, from /proc or else from ps."""
    parent_of: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat") if is_linux() else ():
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name in brackets may hold spaces; the state and the parent follow it.
            parent_of[int(path.parent.name)] = int(path.read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    if parent_of:
        return parent_of
    lines = _output("ps", "-A", "-o", "pid=,ppid=").splitlines()
    return {int(pid): int(parent) for pid, parent in (line.split() for line in lines)}


def tune_allocator() -> None:
    """Make glibc keep freed memory in the process instead of mapping and faulting every large temporary anew.

    Call this before the first tensor is made. docs/benchmarks.md has the time that it saves.
    """
    # With this variable torch asks the kernel for huge pages behind large tensors.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    if is_linux() and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        # Memory that goes back to the kernel has to be mapped and zeroed again: so nothing is mapped on its own, and
        # the heap is never trimmed.
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)
        libc.mallopt(M_TOP_PAD, 128 << 20)


def _cpuinfo() -> list[tuple[str, str]]:
    try:
        pairs = [line.partition(":") for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()]
    except OSError:
        return []
    return [(key.strip(), value.strip()) for key, _, value in pairs]


def _output(*command: str) -> str:
    """Return what a command of the system prints; empty if it is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, encoding="utf-8", check=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
