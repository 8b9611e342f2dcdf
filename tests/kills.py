"""SIGKILL a process of golf at a named write: before or after the fsync, rename or link of a file."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

VARIABLE = "GOLF_TEST_KILL_AT"  # file, function and moment, such as `artifact.golf replace before`


def kill_at(where: str) -> None:
    """Let this process end at the first write that `where` names."""
    file, function, moment = where.split()
    real: Callable[..., Any] = getattr(os, function)

    def write(*args: Any, **kwargs: Any) -> Any:
        target = Path(args[-1]) if function != "fsync" else Path(f"/proc/self/fd/{args[0]}").readlink()
        # A file that is being written has a hidden name, which begins with its own.
        is_meant = target.name.lstrip(".").startswith(file)
        if is_meant and moment == "before":
            _die()
        done = real(*args, **kwargs)
        if is_meant:
            _die()
        return done

    setattr(os, function, write)


def _die() -> None:
    # A rank of several ends with its launcher, as on a machine that is taken away.
    if "RANK" in os.environ:
        agent = os.getppid()
        launcher = int(Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(launcher, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def startup_folder(folder: Path) -> Path:
    """Write a folder that, on PYTHONPATH, lets every process do what the variable says."""
    folder.mkdir(exist_ok=True)
    code = f"import os\nif {VARIABLE!r} in os.environ:\n    import kills\n    kills.kill_at(os.environ[{VARIABLE!r}])\n"
    (folder / "sitecustomize.py").write_text(code)
    (folder / "kills.py").write_text(Path(__file__).read_text())
    return folder
