"""Lock files for runs, run folders, shares of a machine and submissions. The kernel frees them when their holder ends.

`<runs root>/locks/<name>` is locked with flock by the process that does the work and by its parent, so that a killed
process leaves no lock behind. A file that nobody holds a lock on means nothing. Locks hold between processes of a
machine, and between machines wherever the file system carries them (NFS with its lock service, Lustre mounted with
`flock`, GPFS). Where the file system refuses locks, every lock is granted, and a run warns of it: a second start would
then do a run twice, or go on in the folder of a living one, which ends at its next checkpoint.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from golf.files import disk_errors, shared_folder
from golf.run.folder import runs_root


@dataclass(frozen=True)
class Lock:
    """A lock file, held until `release`, the end of its `with`, or of every process that inherited `descriptor`."""

    path: Path
    descriptor: int

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        # The file goes before the lock: a process that has opened it in between sees that it lost its name.
        self.path.unlink(missing_ok=True)
        os.close(self.descriptor)


def run_lock_name(variant_id: str, seed: int) -> str:
    """Return the name of a run's lock, the same under every name that its variant is run under."""
    return f"{variant_id}-seed{seed}"


def try_lock(name: str) -> Lock | None:
    """Take the lock `name` of the runs root, or return None if another process holds it.

    Raises `GolfError` if the lock file cannot be made.
    """
    return lock_file(_path(name))


def lock_file(path: Path) -> Lock | None:
    """Take the lock of the file `path`, or return None if another process holds it. Raises as `try_lock`."""
    while True:
        with disk_errors(path):
            shared_folder(path.parent)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        if not _flock(descriptor, fcntl.LOCK_EX):
            # A holder keeps off a shared lock, too. If there is none, `is_held` of another process was in the way.
            is_taken = not _flock(descriptor, fcntl.LOCK_SH)
            os.close(descriptor)
            if is_taken:
                return None
            continue
        if _is_still(path, descriptor):
            # Nothing reads the content; it tells a person who looks who is at work. On a full disk it is missing.
            with contextlib.suppress(OSError):
                os.truncate(descriptor, 0)
                os.write(descriptor, json.dumps({"host": socket.gethostname(), "process": os.getpid()}).encode())
            return Lock(path, descriptor)
        # The holder removed the file between our opening and our locking it: our lock is on a file without a name.
        os.close(descriptor)


def is_locked(name: str) -> bool:
    """Tell whether a process holds the lock `name` of the runs root now."""
    return is_held(_path(name))


def is_held(path: Path) -> bool:
    """Tell whether a process holds the lock of the file `path` now."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        # A shared lock, so that two processes that ask at once do not take each other for a holder.
        return not _flock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _path(name: str) -> Path:
    return runs_root() / "locks" / name


def _flock(descriptor: int, how: int) -> bool:
    """Return False if another process holds the lock. True also means that the file system knows no locks."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    return True


def _is_still(path: Path, descriptor: int) -> bool:
    """Tell whether the file opened as `descriptor` is the one that `path` names now."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    return False
