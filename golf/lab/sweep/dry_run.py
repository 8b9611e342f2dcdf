"""What a sweep would do, without doing it: its runs, what has finished before, about how long the rest takes.

Nothing is written, no data are built, and the inputs of the runs are not opened.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from golf.errors import GolfError
from golf.lab.sweep.batch import announce, has_finished
from golf.lab.sweep.jobs import Job, Refused, common_overrides, distinct, label
from golf.lab.sweep.rounds import DECIDED, planned
from golf.launch.shares import shares
from golf.settings.config import Config
from golf.words import counted, duration


def show_dry_run(asked: Sequence[Job | Refused], name: str) -> None:
    """Print counts, remarks and expected seconds of the sweep `name` of `asked`.

    Raises `GolfError` if a run would be refused, or if the sweep could not go on as its record says.
    """
    jobs, common = [job for job in asked if isinstance(job, Job)], common_overrides(asked)
    wanted, refused = distinct(jobs), [job for job in asked if isinstance(job, Refused)]
    for job in refused:
        print(f"error: {label(job, common)}: {job.sentence}", file=sys.stderr, flush=True)
    print(f"sweep {name}, a dry run: nothing is trained", flush=True)
    if jobs and jobs[0].cfg.sweep.until == DECIDED:
        variants, plan = planned(asked, name)
        count, rounds = counted(len(variants), "variant"), counted(len(plan.seeds), "round")
        print(f"{count} in at most {rounds} of a seed each, until each variant is decided")
        print(f"  {seconds_of(jobs[0].cfg, len(variants) * len(plan.seeds), 'at most ')}")
    else:
        announce(len(asked), wanted, len(jobs) - len(wanted), len(refused))
        if to_run := [job for job in wanted if not has_finished(job)]:
            print(f"  {seconds_of(to_run[0].cfg, len(to_run))}")
    if refused:
        raise GolfError(
            f"{len(refused)} of {counted(len(asked), 'run')} are refused, for the reasons above: correct or drop them."
        )


def seconds_of(cfg: Config, runs: int, most: str = "") -> str:
    """Return a sentence on the seconds of `runs` runs like `cfg` on this machine, as far as the plan tells."""
    # Only here, because it needs torch.
    from golf.lab.plan.plan import make_plan

    plan, at_once = make_plan(cfg), len(shares(cfg))
    training = plan.seconds.expected if plan.seconds else plan.train_seconds
    if not training:
        return f"{most}{counted(runs, 'run')}, seconds unknown: {plan.step_time.basis}"
    # Before quantization and after it, the second perhaps in other ways, too.
    scores = 2 * (plan.score.seconds or 0.0) + (plan.score.ttt_seconds or 0.0)
    whole = duration((training + scores) * -(-runs // at_once))
    return (
        f"about {duration(training + scores)} of training and scores for the first run, {most}{whole} for "
        f"{counted(runs, 'run')}, {at_once} at once; start and proofs come on top ({plan.step_time.basis})"
    )
