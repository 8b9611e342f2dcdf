"""The mirror as a process beside the run: started before its ranks, told of its end, never waited for in between."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from golf.errors import GolfError
from golf.jobs.track.record import INCOMPLETE, open_record, warning, write_record
from golf.paths import ROOT
from golf.run.folder import RunFolder
from golf.settings.config import RulesConfig, TrackConfig

GRACE_SECONDS = 5.0  # for ending what it started


def check_installed() -> None:
    """Raise `GolfError` if wandb is missing. Looks without importing it, which takes half a second."""
    found = importlib.util.find_spec("wandb")
    if found is None or found.origin is None:  # a folder wandb/ with runs is no package
        raise GolfError("track=wandb needs the package wandb: `pip install 'golf[wandb]'`, or leave track=none.")


@contextlib.contextmanager
def mirrored(folder: RunFolder, track: TrackConfig) -> Iterator[None]:
    """Mirror `folder` while the block runs, and give the upload `track.finish_seconds` after it."""
    process = start(folder, track)
    try:
        yield
    finally:
        end(process, folder, track.finish_seconds)


def start(folder: RunFolder, track: TrackConfig, rules: RulesConfig | None = None) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C is the training's. `rules` are for the report of a sweep."""
    settings = {"track": dataclasses.asdict(track), "rules": dataclasses.asdict(rules) if rules else None}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-m", "golf.jobs.track.mirror", str(folder.path), json.dumps(settings)],
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )


def end(process: subprocess.Popen[bytes], folder: RunFolder, seconds: float) -> bool:
    """Tell the mirror that the run is over and wait until it is done. True if everything arrived.

    It keeps to `seconds` by itself; one that does not is killed. Ctrl-C ends the waiting, not the mirror.
    """
    try:
        process.communicate(timeout=seconds + GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        kill_descendants(process.pid)
        process.kill()
        process.wait()
    except KeyboardInterrupt:
        text = (
            f"W&B: not waited for; what does not get through within {seconds:g} s, scripts/sync_wandb.py uploads later"
        )
        print(f"\n{text}", file=sys.stderr, flush=True)
        return False
    if process.returncode:
        _warn_once(folder)
    return process.returncode == 0


def _warn_once(folder: RunFolder) -> None:
    """Unless the mirror has said why."""
    record = open_record(folder.path)
    if record.warning:
        return
    record.state, record.warning = INCOMPLETE, warning(f"the mirror failed, see {folder.track_log}", folder.path)
    print(f"warning: {record.warning}", file=sys.stderr, flush=True)
    with contextlib.suppress(GolfError):  # a full disk, which the run itself reports
        write_record(folder.path, record)


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
