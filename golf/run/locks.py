"""Who is at work on what: lock files, which the kernel frees when their holder ends, however it ends.

`<runs root>/claims/<name>` is locked with flock by the process that does the work and by its parent, so that a killed
process leaves no claim behind; a file without a lock means nothing. This holds between processes of a machine, and
between machines wherever the file system carries locks (NFS with its lock service, Lustre mounted with `flock`, GPFS).
Where locks are refused every claim is granted: two sweeps at once may then do a run twice, each in a folder of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from golf.files import disk_error
from golf.run.folder import runs_root


@dataclass(frozen=True)
class Claim:
    """Held until `release`, or until every process that inherited `descriptor` has ended."""

    path: Path
    descriptor: int

    def release(self) -> None:
        """The file goes first: who opens it in between sees that it is no longer the one with this name."""
        self.path.unlink(missing_ok=True)
        os.close(self.descriptor)


def run_claim(variant_id: str, seed: int) -> str:
    """Name of the claim on a run, whatever its variant is called."""
    return f"{variant_id}-seed{seed}"


def try_claim(name: str) -> Claim | None:
    """Claim `name`, or None if another process holds it. Raises `GolfError` where no file can be made."""
    path = _path(name)
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise disk_error(path, error) from error
        if not _lock(descriptor, fcntl.LOCK_EX):
            os.close(descriptor)
            return None
        if _is_still(path, descriptor):
            os.truncate(descriptor, 0)
            os.write(descriptor, json.dumps({"host": socket.gethostname(), "process": os.getpid()}).encode())
            return Claim(path, descriptor)
        os.close(descriptor)  # its holder released it between our opening and our locking


def is_claimed(name: str) -> bool:
    """Whether somebody is at work on `name` now."""
    try:
        descriptor = os.open(_path(name), os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _path(name: str) -> Path:
    return runs_root() / "claims" / name


def _lock(descriptor: int, how: int) -> bool:
    """Lock or say that another process has; true as well where the file system knows no locks."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _is_still(path: Path, descriptor: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    return False
