"""A run of a sweep in a process of its own: its start, its stop, and a result whatever became of it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from golf.jobs.launch.process import Interrupted
from golf.jobs.launch.rank import failed
from golf.jobs.sweep.jobs import Job
from golf.jobs.sweep.shares import Share
from golf.paths import ROOT
from golf.run.folder import RunFolder, create_run_folder
from golf.run.locks import Lock
from golf.run.result import INTERRUPTED, Result, read_result

PATIENCE_SECONDS = 60.0  # between asking a process to stop and killing it
TAIL_BYTES = 4096


@dataclass
class Child:
    """One job at work. `locks` are freed by the kernel when this process and that one have both ended."""

    job: Job
    folder: RunFolder
    process: subprocess.Popen[bytes]
    locks: Sequence[Lock]
    started_at: float = field(default_factory=time.monotonic)
    asked: Interrupted | None = None
    kill_at: float = float("inf")

    @staticmethod
    def start(job: Job, share: Share, locks: Sequence[Lock]) -> Child:
        """Make the run's folder and start its process, which writes to `output.log` there and inherits `locks`."""
        cfg = dataclasses.replace(job.cfg, launch=dataclasses.replace(job.cfg.launch, threads=share.threads))
        folder = create_run_folder(cfg, ["golf/train.py", *job.overrides])
        with folder.output.open("wb") as output:
            process = _popen(folder, share, [c.descriptor for c in locks], output)
        return Child(job, folder, process, locks)

    def has_ended(self) -> bool:
        if time.monotonic() > self.kill_at:
            self.process.kill()
        return self.process.poll() is not None

    def ask_to_stop(self, error: Interrupted) -> None:
        """Pass the signal on."""
        self.asked, self.kill_at = error, time.monotonic() + PATIENCE_SECONDS
        self.process.send_signal(error.number)

    def result(self) -> Result:
        """What it left, or what its end without a word means. Frees its locks."""
        status = self.process.wait()
        result = read_result(self.folder.result) if self.folder.result.exists() else None
        if result is None or (result.state == INTERRUPTED and status < 0):
            error = self.asked or RuntimeError(f"the process {_ending(status)}; see {self.folder.output}")
            result = failed(self.job.cfg, self.folder, error)
            self.folder.write_result(result)
        for lock in self.locks:
            lock.release()
        return result

    def last_metric(self) -> dict[str, Any]:
        """The newest line of its metrics.jsonl, empty before there is one."""
        with contextlib.suppress(OSError, ValueError):
            with self.folder.metrics.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
                whole = file.read().rpartition(b"\n")[0]
            return json.loads(whole.rpartition(b"\n")[2])
        return {}


def _popen(folder: RunFolder, share: Share, descriptors: Sequence[int], output: Any) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C reaches the sweep alone, which passes it on once."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-m", "golf.jobs.launch.job", str(folder.path), *map(str, descriptors)],
        env={**os.environ, "PYTHONPATH": path, **share.environment()},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        pass_fds=descriptors,
        start_new_session=True,
    )


def _ending(status: int) -> str:
    if status >= 0:
        return f"ended without a result (status {status})"
    hint = ", perhaps by the system for want of memory" if -status == signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-status).name}{hint}"
