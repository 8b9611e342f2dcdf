"""Start the mirror's process before a run's ranks, and tell it when the run ends. Training never waits for it."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

from golf.errors import GolfError
from golf.lab.track.mirror_record import INCOMPLETE, MirrorRecord, warning
from golf.paths import import_variables
from golf.run.folder import RunFolder
from golf.settings.config import RulesConfig
from golf.settings.jobs_config import TrackConfig
from golf.system import parents
from golf.tables import grouped

GRACE_SECONDS = 5.0  # time for the mirror to end the processes that it started


def check_installed() -> None:
    """Raise `GolfError` if wandb is not installed. Importing it to find out would take half a second."""
    spec = importlib.util.find_spec("wandb")
    # A folder wandb/ with recorded runs in the current directory is found, too, but has no origin.
    if spec is None or spec.origin is None:
        raise GolfError("track=wandb needs the package wandb: `pip install 'golf[wandb]'`, or leave track=none.")


@contextlib.contextmanager
def mirrored(folder: RunFolder, track: TrackConfig) -> Iterator[None]:
    """Mirror `folder` while the block runs, and wait up to `track.finish_seconds` for the upload after it."""
    process = start(folder, track)
    try:
        yield
    finally:
        end(process, folder, track.finish_seconds)


def start(folder: RunFolder, track: TrackConfig, rules: RulesConfig | None = None) -> subprocess.Popen[bytes]:
    """Start the mirror of `folder` and return its process. `rules` are for the report of a sweep."""
    settings = {"track": dataclasses.asdict(track), "rules": dataclasses.asdict(rules) if rules else None}
    return subprocess.Popen(
        [sys.executable, "-m", "golf.lab.track.mirror", str(folder.path), json.dumps(settings)],
        stdin=subprocess.PIPE,
        env={**os.environ, **import_variables()},
        # Ctrl-C is meant for the training. The mirror has to live on to upload what the training wrote.
        start_new_session=True,
    )


def end(process: subprocess.Popen[bytes], folder: RunFolder, seconds: float) -> bool:
    """Tell the mirror that the run has ended and wait until it is done. Return True if everything arrived.

    A mirror that takes longer than `seconds` is killed. Ctrl-C ends the waiting, not the mirror.
    """
    try:
        # Closing the mirror's standard input is the message that the run has ended.
        process.communicate(timeout=seconds + GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        # Once the mirror is gone its children have another parent, and cannot be found any more.
        kill_descendants(process.pid)
        process.kill()
        process.wait()
    except KeyboardInterrupt:
        text = f"W&B: no longer waiting; `golf sync` uploads later what does not arrive within {seconds:g} s"
        print(f"\n{text}", file=sys.stderr, flush=True)
        return False
    if process.returncode:
        _warn_once(folder)
    return process.returncode == 0


def _warn_once(folder: RunFolder) -> None:
    """Print and record a warning that the mirror failed, unless the mirror has printed one itself."""
    if (record := MirrorRecord.open(folder.path)).warning:
        return
    record.state, record.warning = INCOMPLETE, warning(f"the mirror failed, see {folder.track_log}", folder.path)
    print(f"warning: {record.warning}", file=sys.stderr, flush=True)
    # The run itself reports a full disk.
    with contextlib.suppress(GolfError):
        record.write(folder.path)


def kill_descendants(pid: int) -> None:
    """Kill all children of `pid`, their children and so on."""
    for child in descendants(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        # Only the parent of a process can collect its exit status.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)


def descendants(pid: int) -> list[int]:
    """Return the process ids of all descendants of `pid`, each after its own children."""
    children = grouped((parent, child) for child, parent in parents().items())

    def below(parent: int) -> list[int]:
        return [pid for child in children.get(parent, []) for pid in (*below(child), child)]

    return below(pid)
