"""Show how far the runs of a sweep are."""

from __future__ import annotations

import time

from golf.commands.parsing import CommandParser

SECONDS_BETWEEN = 5.0


def main(arguments: list[str]) -> int:
    """Print the table of runs, once or until they have ended."""
    args = CommandParser("status", __doc__).parse_intermixed_args(arguments)
    from rich.live import Live

    from golf.jobs.cluster.show import status_table
    from golf.jobs.cluster.status import RUNNING, WAITING, find_record, sweep_status
    from golf.jobs.cluster.waves import about_waves
    from golf.report.summary import console

    if args.sweep is None:
        return _list_sweeps()
    record = find_record(args.sweep)
    lines = sweep_status(record)
    if not args.watch:
        console().print(status_table(lines, record.name))
        if said := about_waves(record.name):
            print(said)
        return 0
    with Live(status_table(lines, record.name), auto_refresh=False) as live:
        while any(line.state in (RUNNING, WAITING) for line in lines):
            time.sleep(SECONDS_BETWEEN)
            lines = sweep_status(record)
            live.update(status_table(lines, record.name), refresh=True)
    return 0


def _list_sweeps() -> int:
    """Print every sweep with the states of its runs, oldest first."""
    from golf.errors import GolfError
    from golf.jobs.cluster.status import counts, find_record, sweep_status
    from golf.report.store import sweep_names
    from golf.run.folder import runs_root

    names = sweep_names(runs_root())
    for name in names:
        try:
            print(f"{name}: {counts(sweep_status(find_record(name)))}")
        except GolfError as error:
            # One damaged record hides no other sweep.
            print(f"{name}: {error}")
    if not names:
        print(f"No sweep has been run under {runs_root()}.")
    return 0
