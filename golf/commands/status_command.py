"""Show how far the runs of a sweep are."""

from __future__ import annotations

import io
import sys
import time
from collections import Counter
from typing import Any

from golf.commands.parsing import CommandParser
from golf.errors import GolfError
from golf.words import answer

SECONDS_BETWEEN = 5.0
LOOKS_TO_END = 2  # one after the other that found nobody at work


def main(arguments: list[str]) -> int:
    """Print the table of runs, once or until the sweep has ended. Then the status is 1 unless every run is `ok`."""
    args = CommandParser("status", __doc__).parse_intermixed_args(arguments)
    from golf.lab.cluster.batch import about_follower
    from golf.lab.cluster.show import status_table
    from golf.lab.cluster.status import find_record, sweep_status
    from golf.lab.cluster.waves import about_waves
    from golf.run.summary import console

    if args.sweep is None:
        return _list_sweeps(args.json)
    record = find_record(args.sweep)
    if args.watch:
        return _watch(record.name, args.json)
    if args.json:
        print(answer(state_of(record.name)))
        return 0
    console().print(status_table(sweep_status(record), record.name))
    for said in filter(None, (about_waves(record.name), about_follower(record.name))):
        print(said)
    return 0


def state_of(name: str) -> dict[str, Any]:
    """Return how far sweep `name` is, for a program: is anybody at work, runs by state, and every run."""
    from golf.lab.cluster.status import find_record, is_at_work, sweep_status

    lines = sweep_status(find_record(name))
    states = Counter(line.state.replace(" ", "_") for line in lines)
    runs = [{**vars(line), "state": line.state.replace(" ", "_")} for line in lines]
    return {"sweep": name, "at_work": is_at_work(name, lines), "states": states, "runs": runs}


def _watch(name: str, as_json: bool) -> int:
    """Print the table of sweep `name` until nobody is at work on it. Return 0 if every run is `ok`, else 1.

    JSON is printed once, at the end.
    """
    from rich.console import Console
    from rich.live import Live

    from golf.lab.cluster.show import status_table
    from golf.lab.cluster.status import NOT_STARTED, find_record, is_at_work, sweep_status
    from golf.run.result import OK
    from golf.run.summary import console

    idle = 0
    with Live(console=Console(file=io.StringIO()) if as_json else console(), auto_refresh=False) as live:
        while True:
            # Read anew: a round or a search adds runs.
            lines = sweep_status(find_record(name))
            live.update(status_table(lines, name), refresh=True)
            # Between two rounds nobody is at work for a moment.
            idle = 0 if is_at_work(name, lines) else idle + 1
            if idle == LOOKS_TO_END:
                break
            time.sleep(SECONDS_BETWEEN)
    if as_json:
        print(answer(state_of(name)))
    if any(line.state == NOT_STARTED for line in lines):
        print("Nobody is at work on this sweep any more: the same command goes on with it.", file=sys.stderr)
    return 0 if all(line.state == OK for line in lines) else 1


def _list_sweeps(as_json: bool) -> int:
    """Print every sweep with the states of its runs, oldest first."""
    from golf.lab.cluster.status import counts, find_record, sweep_status
    from golf.lab.report.store import sweep_names
    from golf.run.folder import runs_root

    names = sweep_names(runs_root())
    if as_json:
        print(answer([_state_or_error(name) for name in names]))
        return 0
    for name in names:
        try:
            print(f"{name}: {counts(sweep_status(find_record(name)))}")
        except GolfError as error:
            # One damaged record hides no other sweep.
            print(f"{name}: {error}")
    if not names:
        print(f"No sweep has been run under {runs_root()}.")
    return 0


def _state_or_error(name: str) -> dict[str, Any]:
    """Return `state_of` a sweep without its runs; for a damaged record its name and the error."""
    try:
        return {key: value for key, value in state_of(name).items() if key != "runs"}
    except GolfError as error:
        return {"sweep": name, "error": str(error)}
