"""Send a run or a sweep to a Slurm cluster or a rented machine.

    golf submit cluster=slurm_h100 OVERRIDES
    golf submit cluster=ssh cluster.host=root@1.2.3.4:22022 OVERRIDES

The overrides are those of golf train. Runs that have finished, are running or wait in the queue are left out. The jobs
run from a snapshot of the code, and the command returns as soon as they are queued.
"""

from __future__ import annotations

import os
import sys

from golf.commands.parsing import CommandParser

DRY_RUN_FLAG = "--dry-run"


def main(arguments: list[str]) -> int:
    """Submit the runs; the exit status is that of golf train."""
    if {"-h", "--help"} & set(arguments) or all(a.startswith("-") for a in arguments):
        # This prints the help, or that overrides are missing, and exits.
        CommandParser("submit", __doc__).parse_args(arguments)
    from golf.start import set_up

    # It makes hydra_plugins/ importable.
    set_up()
    from golf import train
    from golf.lab.cluster.hardware import cluster_hardware
    from golf.settings.hardware import assumed
    from golf.settings.usage import DRY_RUN
    from hydra_plugins.golf_submitter import SUBMITS

    overrides = [a for a in arguments if a != DRY_RUN_FLAG and not train.MULTIRUN.fullmatch(a)]
    machine = cluster_hardware(overrides)
    if DRY_RUN_FLAG in arguments:
        os.environ[DRY_RUN] = "1"
    with assumed(machine):
        return train.command_line([sys.argv[0], "-m", *overrides, *SUBMITS])
