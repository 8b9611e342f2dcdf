"""One run of a sweep as a child process: start it, stop it, and get a result however it ended."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from golf.lab.sweep.jobs import Job
from golf.launch.process import Interrupted
from golf.launch.shares import Share
from golf.launch.worker import failed
from golf.paths import import_variables
from golf.run.attempts import next_attempt
from golf.run.folder import RunFolder
from golf.run.locks import Lock
from golf.run.result import INTERRUPTED, Result, read_result

PATIENCE_SECONDS = 60.0  # time between asking a process to stop and killing it


@dataclass
class Child:
    """A job at work in its own process. The kernel releases `locks` when that process and this one have both ended."""

    job: Job
    folder: RunFolder
    process: subprocess.Popen[bytes]
    locks: Sequence[Lock]
    started_at: float = field(default_factory=time.monotonic)
    stop_reason: Interrupted | None = None
    kill_at: float = float("inf")  # time.monotonic() after which the process is killed

    @staticmethod
    def start(job: Job, share: Share, locks: Sequence[Lock]) -> Child:
        """Start the process of a run in its folder. It inherits `locks` and writes to `output.log` there."""
        cfg = dataclasses.replace(job.cfg, launch=dataclasses.replace(job.cfg.launch, threads=share.threads))
        folder, lock = next_attempt(cfg, ["golf/train.py", *job.overrides])
        locks = [*locks, lock]
        # Many runs write at once, so none of them gets the terminal. A run that resumes adds to what is there.
        descriptors = [lock.descriptor for lock in locks]
        with folder.output.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "golf.launch.job", str(folder.path), *map(str, descriptors)],
                env={**os.environ, **import_variables(), **share.environment()},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=descriptors,
                # In its own session Ctrl-C does not reach it: the sweep gets the signal and passes it on once.
                start_new_session=True,
            )
        return Child(job, folder, process, locks)

    def has_ended(self) -> bool:
        """Tell whether the process has ended. Kills it first if its time to stop is over."""
        if time.monotonic() > self.kill_at:
            self.process.kill()
        return self.process.poll() is not None

    def ask_to_stop(self, error: Interrupted) -> None:
        """Send the signal that stopped the sweep to the process."""
        self.stop_reason, self.kill_at = error, time.monotonic() + PATIENCE_SECONDS
        self.process.send_signal(error.number)

    def result(self) -> Result:
        """Return the result of the ended process and release its locks.

        A process that died without writing a result gets one: `interrupted` if it was asked to stop, else `crashed`.
        """
        status = self.process.wait()
        result = read_result(self.folder.result) if self.folder.result.exists() else None
        if result is None or (result.state == INTERRUPTED and status < 0):
            error = self.stop_reason or RuntimeError(f"the process {_ending(status)}; see {self.folder.output}")
            result = failed(self.job.cfg, self.folder, error)
            self.folder.write_failure(result)
        for lock in self.locks:
            lock.release()
        return result


def _ending(status: int) -> str:
    """Return the end of the sentence "the process …" for an exit status."""
    if status >= 0:
        return f"ended without a result (status {status})"
    hint = ", perhaps by the system for want of memory" if -status == signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-status).name}{hint}"
