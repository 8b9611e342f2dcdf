"""End a run of this machine on purpose, and take that back.

A file in the run's folder asks for the state `stopped`, and a signal ends the process. Whoever writes the result finds
the file: the process itself, its launcher, or the command here if both are gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable

from golf.errors import GolfError
from golf.files import read_json, read_object, write_atomic, write_json
from golf.launch.process import Interrupted
from golf.launch.worker import failed
from golf.run.environment import host_name
from golf.run.folder import RunFolder, state_of
from golf.run.locks import lock_file
from golf.run.result import ENDED, INTERRUPTED, STOPPED

PATIENCE_SECONDS, POLL_SECONDS = 90.0, 0.2


def stop_here(folder: RunFolder) -> str:
    """Stop an attempt of this machine and return the state that it has then. One that has ended keeps its state.

    One that does not run is stopped, too, so that nothing goes on with it. Raises `GolfError` if it runs elsewhere or
    does not end.
    """
    if (state := state_of(folder)) in ENDED:
        return state
    until = time.monotonic() + PATIENCE_SECONDS
    while (lock := lock_file(folder.lock)) is None:
        # Without it the run is about to start, and its lock names the sweep that starts it.
        started = read_object(folder.start)
        if started and not folder.stop.exists():
            if started["host"] != host_name():
                raise GolfError(f"{folder.path} is at work on {started['host']}: golf stop ends it there.")
            write_atomic(folder.stop, "")
            with contextlib.suppress(ProcessLookupError):
                os.kill(started["process"], signal.SIGTERM)
        if time.monotonic() > until:
            kill = f"kill -9 {started['process']} ends it" if started else "it does not tell its process"
            raise GolfError(f"{folder.path} has not ended within {PATIENCE_SECONDS:.0f} s: {kill}.")
        time.sleep(POLL_SECONDS)
    with lock:
        if state_of(folder) not in ENDED:
            write_atomic(folder.stop, "")
            folder.write_failure(failed(folder.read_config(), folder, Interrupted(signal.SIGTERM)))
    if (state := state_of(folder)) != STOPPED:
        folder.stop.unlink(missing_ok=True)
    return state


def let_go_on(folders: Iterable[RunFolder]) -> int:
    """Let the same command go on with the stopped ones of these attempts, and return how many there were."""
    stopped = [folder for folder in folders if state_of(folder) == STOPPED]
    for folder in stopped:
        result = read_json(folder.result) | {"state": INTERRUPTED, "reason": "golf stop, which was taken back"}
        folder.stop.unlink(missing_ok=True)
        write_json(folder.result, result)
    return len(stopped)
