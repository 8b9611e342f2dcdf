"""What a submission looks like on the terminal."""

from __future__ import annotations

import sys

from rich.table import Table

from golf.jobs.cluster.status import RunStatus, counts
from golf.jobs.cluster.submit import Submission
from golf.jobs.sweep.jobs import common_overrides, label
from golf.plan.lines import lines_before_run
from golf.run.folder import runs_root


def show_submission(submission: Submission, name: str) -> None:
    """Counts, cost and what the first job will look like, before anything is sent."""
    s = submission
    common = common_overrides([*s.jobs, *s.refused])
    for refused in s.refused:
        print(f"error: {label(refused, common)}: {refused.sentence}", file=sys.stderr)
    numbers = {
        "to submit": len(s.to_run),
        "finished": s.finished,
        "running or queued": s.running,
        "the same run as another": s.repeated,
        "refused": len(s.refused),
    }
    print(f"sweep {name}: {', '.join(f'{n} {what}' for what, n in numbers.items() if n or what == 'to submit')}")
    if not s.to_run:
        return
    cluster = s.to_run[0].cfg.cluster
    if cluster.gpus:
        price = f", ${s.dollars:,.0f}" if s.dollars else ""
        print(f"at most {s.gpu_hours:,.1f} GPU hours{price}: {cluster.minutes} minutes each, {cluster.at_once} at once")
    else:
        print(f"{cluster.minutes} minutes each at most, {cluster.at_once} at once, no GPUs")
    for remark in dict.fromkeys(remark for job in s.to_run for remark in job.remarks):
        print(f"  {remark}")
    for line in lines_before_run(s.to_run[0].cfg):
        print(f"  first run's {line}")


def show_sent(ids: list[str], name: str) -> None:
    first = ids[0].partition("_")[0]
    print(f"submitted {len(ids)} jobs as {first}; `python scripts/status.py {name}` says how they stand")


def status_table(lines: list[RunStatus], name: str) -> Table:
    """The runs of a sweep and their counts."""
    table = Table(title=f"{name}: {counts(lines)}", title_justify="left", caption=str(runs_root()))
    for heading in ("run", "seed", "state", "", "job"):
        table.add_column(heading, justify="right" if heading == "seed" else "left")
    for line in lines:
        table.add_row(line.label, str(line.seed), line.state, line.detail, line.job)
    return table
