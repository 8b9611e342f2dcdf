"""Print an order to a cluster, and the status of a sweep."""

from __future__ import annotations

import sys

from rich.table import Table

from golf.lab.cluster.status import RunStatus, counts
from golf.lab.cluster.submit import ClusterOrder
from golf.lab.sweep.jobs import about_stopped, common_overrides, label, made_by_other_code
from golf.run.folder import runs_root
from golf.settings.config import training_seconds
from golf.settings.hardware import detect
from golf.words import counted

MOST_IN_AN_ARRAY = 1000  # jobs, by Slurm's default of MaxArraySize


def show_order(order: ClusterOrder, name: str) -> None:
    """Print counts, cost and the plan of the first run, before anything is sent."""
    common = common_overrides([*order.jobs, *order.refused])
    for refused in order.refused:
        print(f"error: {label(refused, common)}: {refused.sentence}", file=sys.stderr)
    numbers = {
        "to submit": len(order.to_run),
        "finished": order.finished,
        "running or queued": order.running,
        "the same run as another": order.repeated,
        "refused": len(order.refused),
    }
    print(f"sweep {name}: {', '.join(f'{n} {what}' for what, n in numbers.items() if n or what == 'to submit')}")
    sent = {job.key for job in order.to_run}
    others = [job.key for job in order.jobs if job.key not in sent]
    for sentence in made_by_other_code(others):
        print(f"  {sentence}; launch.fresh=true runs them again")
    for sentence in about_stopped(others):
        print(f"  {sentence}")
    if not order.to_run:
        return
    cfg = order.to_run[0].cfg
    if cfg.cluster.executor == "ssh":
        gpus = detect().gpus
        what = (
            f"the {counted(gpus, 'GPU')} of {cfg.cluster.host} carry" if gpus else f"{cfg.cluster.host} has cores for"
        )
        print(f"as many at once as {what}, without a limit of time")
        _show_first(order)
        return
    price = f", ${order.dollars:,.0f}" if order.dollars else ""
    cost = f"at most {order.gpu_hours:,.1f} GPU hours{price}" if cfg.cluster.gpus else "no GPUs"
    is_slurm = cfg.cluster.executor == "slurm"
    at_once = (
        f"{cfg.cluster.at_once} at once" if is_slurm else "all at once on these cores; golf train -m shares them out"
    )
    print(f"{cost}: {counted(cfg.cluster.minutes, 'minute')} each, {at_once}")
    if is_slurm and cfg.cluster.minutes * 60 <= training_seconds(cfg):
        print(f"warning: cluster.minutes ends a job before its {training_seconds(cfg):g} s of training: raise it")
    if is_slurm and len(order.to_run) > MOST_IN_AN_ARRAY:
        print(
            f"warning: an array of {counted(len(order.to_run), 'job')} is more than Slurm's MaxArraySize admits unless "
            "the cluster has raised it (scontrol show config): list fewer values, or submit in parts"
        )
    _show_first(order)


def _show_first(order: ClusterOrder) -> None:
    """Print what was chosen for the runs, and the plan of the first."""
    # Only here, because a plan needs torch, and `golf status` prints none.
    from golf.lab.plan.lines import lines_before_run

    for remark in dict.fromkeys(remark for job in order.to_run for remark in job.remarks):
        print(f"  {remark}")
    for line in lines_before_run(order.to_run[0].cfg):
        print(f"  first run's {line}")


def show_sent(ids: list[str], name: str) -> None:
    """Print the number of the job array and how to watch it."""
    first = ids[0].partition("_")[0]
    print(f"submitted {counted(len(ids), 'job')} as {first}; `golf status {name}` says how they stand")


def status_table(lines: list[RunStatus], name: str) -> Table:
    """Return a table of the runs of sweep `name`, with the counts of their states as its title."""
    table = Table(title=f"{name}: {counts(lines)}", title_justify="left", caption=str(runs_root()))
    for heading in ("run", "seed", "state", "", "job"):
        # Labels are folded and not cut: their ends tell the runs apart.
        table.add_column(heading, justify="right" if heading == "seed" else "left", overflow="fold")
    for line in lines:
        table.add_row(line.label, str(line.seed), line.state, line.detail, line.job)
    return table
