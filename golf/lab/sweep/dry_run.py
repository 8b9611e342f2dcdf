"""What a sweep would do, without doing it: its runs, what has finished before, about how long the rest takes.

Nothing is written, no data are built, and the inputs of the runs are not opened.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from golf.errors import GolfError
from golf.lab.sweep.batch import announce, has_finished
from golf.lab.sweep.jobs import Job, Refused, common_overrides, distinct, label
from golf.lab.sweep.rounds import DECIDED, planned
from golf.launch.shares import shares
from golf.run.folder import finished_run
from golf.settings.config import Config
from golf.words import counted, duration


@dataclass(frozen=True)
class Forecast:
    """Expected seconds of runs like one configuration; None where nothing on this machine tells them."""

    first_run_seconds: float | None  # of training and scores; start and proofs come on top
    seconds: float | None  # of all runs
    runs: int
    at_once: int
    basis: str  # where the seconds are known from

    def said(self, most: str = "") -> str:
        """Return the forecast as a sentence."""
        runs = counted(self.runs, "run")
        if self.first_run_seconds is None or self.seconds is None:
            return f"{most}{runs}, seconds unknown: {self.basis}"
        return (
            f"about {duration(self.first_run_seconds)} of training and scores for the first run, "
            f"{most}{duration(self.seconds)} for {runs}, {self.at_once} at once; start and proofs come on top "
            f"({self.basis})"
        )


def show_dry_run(asked: Sequence[Job | Refused], name: str) -> dict[str, Any]:
    """Print counts, remarks and expected seconds of the sweep `name` of `asked`, and return them for programs.

    Raises `GolfError` if a run would be refused, or if the sweep could not go on as its record says.
    """
    jobs, common = [job for job in asked if isinstance(job, Job)], common_overrides(asked)
    wanted, refused = distinct(jobs), [job for job in asked if isinstance(job, Refused)]
    for job in refused:
        print(f"error: {label(job, common)}: {job.sentence}", file=sys.stderr, flush=True)
    print(f"sweep {name}, a dry run: nothing is trained", flush=True)
    told: dict[str, Any] = {"sweep": name, "rounds": None, "forecast": None}
    if jobs and jobs[0].cfg.sweep.until == DECIDED:
        variants, plan = planned(asked, name)
        count, rounds = counted(len(variants), "variant"), counted(len(plan.seeds), "round")
        print(f"{count} in at most {rounds} of a seed each, until each variant is decided")
        told["rounds"], is_fresh = len(plan.seeds), jobs[0].cfg.launch.fresh
        left = [id for id in variants for seed in plan.seeds if is_fresh or not finished_run(id, seed)]
        if left:
            told["forecast"] = forecast(jobs[0].cfg, len(left))
            print(f"  {told['forecast'].said('at most ')}")
    else:
        announce(len(asked), wanted, len(jobs) - len(wanted), len(refused))
        if to_run := [job for job in wanted if not has_finished(job)]:
            told["forecast"] = forecast(to_run[0].cfg, len(to_run))
            print(f"  {told['forecast'].said()}")
    if refused:
        raise GolfError(
            f"{len(refused)} of {counted(len(asked), 'run')} are refused, for the reasons above: correct or drop them."
        )
    return told | {"runs": [run_to_come(job) for job in wanted]}


def run_to_come(job: Job) -> dict[str, Any]:
    """Return a run for programs: its variant, seed and overrides, and the folder of an earlier result that counts."""
    done = finished_run(*job.key) if has_finished(job) else None
    id, seed = job.key
    folder = done and done[1].path
    return {"variant_id": id, "seed": seed, "finished": bool(done), "folder": folder, "overrides": job.overrides}


def forecast(cfg: Config, runs: int) -> Forecast:
    """Return the expected seconds of `runs` runs like `cfg` on this machine, as far as the plan tells."""
    # Only here, because it needs torch.
    from golf.lab.plan.plan import make_plan

    plan, at_once = make_plan(cfg), len(shares(cfg))
    training = plan.seconds.expected if plan.seconds else plan.train_seconds
    if not training:
        return Forecast(None, None, runs, at_once, plan.step_time.basis)
    # Before quantization and after it, the second perhaps in other ways, too.
    one = training + 2 * (plan.score.seconds or 0.0) + (plan.score.ttt_seconds or 0.0)
    return Forecast(one, one * -(-runs // at_once), runs, at_once, plan.step_time.basis)
