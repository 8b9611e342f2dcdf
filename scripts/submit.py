"""Send a sweep to a cluster: `python scripts/submit.py cluster=slurm_h100 <overrides as for golf/train.py -m>`.

Runs that have finished, are running, wait in the queue or occur twice are left out; the rest goes as one job array
that runs from a snapshot of the code, and the terminal is back. --dry-run shows counts and cost and sends nothing.
"""

import os
import sys

from golf import train
from golf.errors import GolfError
from golf.jobs.cluster.shortcut import all_finished, cluster_hardware
from golf.settings.hardware import assumed
from hydra_plugins.golf_submitter import DRY_RUN, SUBMITS


def main() -> int:
    arguments = [a for a in sys.argv[1:] if a not in ("--dry-run", *train.MULTIRUN_FLAGS)]
    if not arguments or {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0 if arguments else train.EXIT_USAGE
    try:
        machine = cluster_hardware(arguments)
        if line := all_finished(arguments):
            print(line)
            return 0
    except GolfError as error:
        print(f"error: {error}", file=sys.stderr)
        return train.EXIT_USAGE
    if "--dry-run" in sys.argv:
        os.environ[DRY_RUN] = "1"
    sys.argv[1:] = ["-m", *arguments, *SUBMITS]
    with assumed(machine):
        return train.command_line()


if __name__ == "__main__":
    sys.exit(main())
