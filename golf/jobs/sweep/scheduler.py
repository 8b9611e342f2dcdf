"""Running the jobs of a sweep on this machine: each its own process on its own share, none twice, each to its end."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field

from golf.errors import GolfError
from golf.jobs.launch.process import Interrupted, interruptible
from golf.jobs.sweep.child import Child
from golf.jobs.sweep.display import SweepDisplay
from golf.jobs.sweep.jobs import Job, Key
from golf.jobs.sweep.shares import lock_share
from golf.run.folder import finished_run
from golf.run.locks import run_lock_name, try_lock
from golf.run.result import Result

POLL_SECONDS = 0.2


@dataclass
class LocalSweep:
    """Where the jobs of a sweep are: `waiting`, then `running` here, or in `results` or `errors`.

    A job that another process is at work on stays in `waiting` until it has finished there, or was given up.
    """

    waiting: list[Job]
    display: SweepDisplay
    running: list[Child] = field(default_factory=list)
    results: dict[Key, Result] = field(default_factory=dict)
    errors: dict[Key, str] = field(default_factory=dict)  # what could not even be started

    def run(self) -> None:
        """All jobs to their ends. `Interrupted` comes through after the processes have stopped."""
        try:
            with interruptible():
                while self.waiting or self.running:
                    self.collect()
                    self.start()
                    self.display.update(self.running, len(self.waiting))
                    time.sleep(POLL_SECONDS)
        except Interrupted as error:
            self.display.stopping(len(self.running))
            self.stop(error)
            raise
        finally:
            self.display.close()

    def collect(self) -> None:
        """Take the results of processes that have ended."""
        for child in [c for c in self.running if c.has_ended()]:
            self.running.remove(child)
            self.results[child.job.key] = child.result()
            self.display.ended(child.job, self.results[child.job.key])

    def start(self) -> None:
        """Start what fits on the machine, take what has finished elsewhere."""
        for job in list(self.waiting):
            try:
                if not self._start_one(job):
                    break
            except GolfError as error:
                self.waiting.remove(job)
                self.errors[job.key] = str(error)
                self.display.failed(job, str(error))

    def _start_one(self, job: Job) -> bool:
        """Start `job` unless somebody has it or had it; False if the machine is full."""
        with contextlib.ExitStack() as stack:
            if (lock := try_lock(run_lock_name(*job.key))) is None:
                return True
            stack.callback(lock.release)
            if not job.cfg.launch.fresh and (done := finished_run(*job.key)):  # nobody else can finish a locked run
                self.waiting.remove(job)
                self.results[job.key] = done[0]
                self.display.ended(job, done[0])
                return True
            if (share := lock_share(job.cfg)) is None:
                return False
            for part in share[1]:
                stack.callback(part.release)
            child = Child.start(job, share[0], [lock, *share[1]])
            stack.pop_all()
        self.waiting.remove(job)
        self.running.append(child)
        self.display.started(job, child.folder)
        return True

    def stop(self, error: Interrupted) -> None:
        """Pass a signal on to every process, and wait until it has written down that it stopped."""
        for child in self.running:
            child.ask_to_stop(error)
        while self.running:
            self.collect()
            time.sleep(POLL_SECONDS)
