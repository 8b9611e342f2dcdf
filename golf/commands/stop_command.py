"""End runs on purpose: here, in a job, or on a rented machine.

Their state is `stopped`. The other runs of a sweep go on, and a sweep that is repeated leaves a stopped run alone. In
verdicts it is a lost run: its score is in no mean, and an improvement has to hold with it as the worst.

    golf stop multirun/9l-1234abcd/seed2
    golf stop multirun/9l-1234abcd/seed2 --undo     # the same command goes on with it then
"""

from __future__ import annotations

from typing import Any

from golf.commands.parsing import CommandParser
from golf.words import answer

TO_GO_ON, NOT_STOPPED = "to_go_on", "not_stopped"  # states after --undo


def main(arguments: list[str]) -> int:
    """Stop the runs and print their states. Return 1 if one had ended before, or with --undo if none was stopped."""
    args = CommandParser("stop", __doc__).parse_intermixed_args(arguments)
    from golf.lab.cluster.stop import key_of, resume_run, stop_run
    from golf.lab.report.store import run_folders
    from golf.run.result import STOPPED

    folders = {key_of(path.absolute()): path for run in args.runs for path in run_folders(run)}
    told: list[dict[str, Any]] = []
    for key, path in folders.items():
        if args.undo:
            told.append({"folder": path, "state": TO_GO_ON if resume_run(key) else NOT_STOPPED})
        else:
            told.append(dict(zip(("folder", "state"), stop_run(key), strict=True)))
        if not args.json:
            print(f"{told[-1]['folder']}: {told[-1]['state'].replace('_', ' ')}")
    if args.json:
        print(answer(told))
    elif not args.undo:
        print("No command goes on with a stopped run, unless it is for that run alone or golf stop --undo comes first.")
    return int(any(one["state"] not in (STOPPED, TO_GO_ON) for one in told))
