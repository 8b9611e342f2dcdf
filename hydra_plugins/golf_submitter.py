"""Hydra's launcher behind scripts/submit.py: the jobs of a sweep are sorted out, shown, and sent to a cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hydra.core.utils import JobReturn, JobStatus, setup_globals

from hydra_plugins.golf_launcher import GolfLauncher

DRY_RUN = "GOLF_DRY_RUN"
SUBMITS = ("hydra/launcher=golf_submit", "hydra/sweeper=golf")  # what scripts/submit.py adds to the command


class GolfSubmitter(GolfLauncher):
    """Returns at once, with no scores: a sweeper that searches needs the launchers that wait."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        from golf.errors import GolfError
        from golf.jobs.cluster.show import show_sent, show_submission
        from golf.jobs.cluster.submit import note_asked, one_submission_at_a_time, sort_out, submit

        setup_globals()
        if initial_job_idx:
            raise GolfError("A sweeper that waits for scores cannot be submitted: use -m with golf/train.py for it.")
        name = Path(self.config.hydra.sweep.dir).name
        asked = [job for _, job in self.jobs(job_overrides)]
        lock = one_submission_at_a_time()
        try:
            submission = sort_out(asked)
            show_submission(submission, name)
            if DRY_RUN not in os.environ:
                note_asked(submission, name)
                if submission.to_run:
                    show_sent(submit(submission, name), name)
        finally:
            lock.release()
        return [JobReturn(o, status=JobStatus.COMPLETED, _return_value=float("nan")) for o in job_overrides]
