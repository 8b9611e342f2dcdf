"""Hydra's launcher behind golf submit: find, show and send a sweep's missing runs to a cluster."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from hydra.core.utils import JobReturn, JobStatus, setup_globals

from golf.settings.usage import DRY_RUN
from hydra_plugins.golf_launcher import GolfLauncher

SUBMITS = ("hydra/launcher=golf_submit", "hydra/sweeper=golf")  # overrides that golf submit adds to the command


class GolfSubmitter(GolfLauncher):
    """A launcher that returns at once and without scores. A sweeper that searches needs a launcher that waits."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        from golf.errors import GolfError
        from golf.lab.cluster.bring import bring_before
        from golf.lab.cluster.rented import start_follower
        from golf.lab.cluster.show import show_order, show_sent
        from golf.lab.cluster.submit import import_submitit, lock_submitting, make_order, record_order, submit
        from golf.lab.cluster.waves import start_waves
        from golf.lab.sweep.dry_run import run_to_come
        from golf.lab.sweep.jobs import Job
        from golf.lab.sweep.record import taken_back_unless_sent
        from golf.lab.sweep.rounds import DECIDED

        setup_globals()
        # A sweeper that searches asks for further batches once it has scores.
        if initial_job_idx:
            raise GolfError("A sweeper that waits for scores cannot be submitted: use -m with golf/train.py for it.")
        name, is_dry_run = Path(self.config.hydra.sweep.dir).name, DRY_RUN in os.environ
        asked = [job for _, job in self.jobs(job_overrides)]
        executors = {job.cfg.cluster.executor for job in asked if isinstance(job, Job)}
        if not is_dry_run and executors != {"ssh"}:
            import_submitit()
        if "slurm" in executors and not is_dry_run and shutil.which("sbatch") is None:
            raise GolfError(
                "There is no Slurm here (no sbatch in the PATH): submit on the cluster's login node, look at the jobs "
                "with --dry-run, or run them on this machine with cluster=local."
            )
        in_rounds = any(isinstance(job, Job) and job.cfg.sweep.until == DECIDED for job in asked)
        # Taken before the queue is asked: two processes that both found a run missing would both send it.
        with lock_submitting(), taken_back_unless_sent(name):
            if not is_dry_run:
                bring_before(asked)
            if in_rounds:
                start_waves(asked, name, sys.argv, dry_run=is_dry_run)
                start_follower(name)
                return [JobReturn(o, status=JobStatus.COMPLETED, _return_value=float("nan")) for o in job_overrides]
            order = make_order(asked)
            self.told.update({"sweep": name, "runs": [run_to_come(job) for job in order.jobs]})
            show_order(order, name)
            if not is_dry_run:
                # Recorded even with nothing to send: reports ask for the sweep.
                record_order(order, name)
                if order.to_run:
                    show_sent(submit(order, name), name)
                start_follower(name)
        # Told at the end, because the others are sent all the same. The exit status must not say that all is well.
        if order.refused:
            count, asked_for = len(order.refused), len(order.refused) + len(order.jobs)
            raise GolfError(f"{count} of {asked_for} runs were refused, for the reasons above: correct or drop them.")
        # There are no scores yet. Hydra's own sweeper, the only one allowed here, does not read them.
        return [JobReturn(o, status=JobStatus.COMPLETED, _return_value=float("nan")) for o in job_overrides]
