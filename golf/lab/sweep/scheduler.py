"""Run the jobs of a sweep on this machine: each in its own process, on its own share of the machine, and none twice.

How a sweep resumes: nothing is saved for it. The same command composes the same jobs, and `jobs.distinct` removes
duplicates by variant id and seed. For each job `LocalSweep._start_one` locks the run, so that no other process works on
it, and asks `run.folder.finished_run` for a result in a run folder that is already there. A finished run keeps its
result and is not run again (unless `launch.fresh`). Any other attempt, one that crashed, was interrupted or was killed,
stays as it is, and `run.attempts.next_attempt` makes a new folder for the next attempt, or has one go on in its own if
it left a checkpoint. A lock ends with the processes that hold it (`run.locks`), so a killed sweep leaves nothing to
clean up. `jobs.progress_of` tells how far a run is without starting it, and `record.sweep_name` gives the same command
the same sweep folder. On a cluster the same holds.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field

from golf.errors import GolfError
from golf.lab.sweep.child import Child
from golf.lab.sweep.display import SweepDisplay
from golf.lab.sweep.jobs import Job, Key
from golf.launch.process import Interrupted, interruptible
from golf.launch.shares import lock_share
from golf.run.attempts import at_work
from golf.run.folder import finished_run
from golf.run.locks import run_lock_name, try_lock
from golf.run.result import Result

POLL_SECONDS = 0.2


@dataclass
class LocalSweep:
    """The jobs of a sweep by their progress: `waiting`, `running` here, or ended with a result or an error.

    A job that another process works on stays in `waiting` until that process has finished it or given it up.
    """

    waiting: list[Job]
    display: SweepDisplay
    running: list[Child] = field(default_factory=list)
    results: dict[Key, Result] = field(default_factory=dict)
    errors: dict[Key, str] = field(default_factory=dict)  # sentences for the jobs that could not be started

    def run(self) -> None:
        """Run all jobs to their ends. Raises `Interrupted` after a stop signal, once all processes have ended."""
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
            self.display.ended(child.job, self.results[child.job.key], time.monotonic() - child.started_at)

    def start(self) -> None:
        """Start the jobs that fit on the machine now, and take the results of those that have finished elsewhere."""
        for job in list(self.waiting):
            try:
                if not self._start_one(job):
                    break
            except GolfError as error:
                self.waiting.remove(job)
                self.errors[job.key] = str(error)
                self.display.failed(job, str(error))

    def _start_one(self, job: Job) -> bool:
        """Start `job` unless it is locked or has finished. Return False if the machine has no share free."""
        with contextlib.ExitStack() as stack:
            # Another process works on this run: the job stays in `waiting`, and the next one is tried.
            if (lock := try_lock(run_lock_name(*job.key))) is None:
                return True
            stack.enter_context(lock)
            # Such as a second attempt beside one that has died since.
            if not job.cfg.launch.fresh and at_work(*job.key):
                return True
            # Asked only after the lock is held: before it, another process could finish the run after the question.
            if not job.cfg.launch.fresh and (done := finished_run(*job.key)):
                self.waiting.remove(job)
                self.results[job.key] = done[0]
                self.display.ended(job, done[0])
                return True
            if (locked := lock_share(job.cfg)) is None:
                return False
            share, share_locks = locked
            for part in share_locks:
                stack.enter_context(part)
            child = Child.start(job, share, [lock, *share_locks])
            # The child has the locks now. `Child.result` releases them.
            stack.pop_all()
        self.waiting.remove(job)
        self.running.append(child)
        self.display.started(job, child.folder)
        return True

    def stop(self, error: Interrupted) -> None:
        """Pass the signal on to every process, and wait until each has written its result."""
        # All are asked before any is waited for, so that they stop at the same time.
        for child in self.running:
            child.ask_to_stop(error)
        while self.running:
            self.collect()
            time.sleep(POLL_SECONDS)
