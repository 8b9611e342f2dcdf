"""Bring results home from rented machines while runs go on.

`golf submit cluster=ssh` starts this by itself. It may be ended and started again, on any machine that has the runs.
"""

from __future__ import annotations

import os
import sys

from golf.commands.parsing import CommandParser


def main(arguments: list[str]) -> int:
    """Bring results home until all are here. The status is 1 if a machine is lost, or if `cluster.done` fails."""
    args = CommandParser("follow", __doc__).parse_intermixed_args(arguments)
    from golf.errors import GolfError
    from golf.lab.cluster.batch import read_batches, waves_file
    from golf.lab.cluster.bring import follow
    from golf.lab.cluster.status import find_record
    from golf.paths import ROOT, import_variables
    from golf.run.sweeps import sweep_folder

    name = find_record(args.sweep).name
    if not (batches := read_batches(name)):
        raise GolfError(f"The sweep {name} was sent to no machine by cluster=ssh: there is nothing to bring home.")
    # The next round runs the code of the first one, also if the checkout was edited meanwhile.
    first = sweep_folder(name) / "snapshots" / batches[0].code
    if waves_file(name).exists() and first.exists() and first != ROOT:
        os.execve(
            sys.executable, [sys.executable, "-m", "golf", "follow", name], {**os.environ, **import_variables(first)}
        )
    return follow(name)
