"""Stop what is left of a submitted sweep: `python scripts/cancel.py SWEEP`. Finished runs keep their results."""

import sys

from golf.errors import GolfError
from golf.jobs.cluster.queue import OPEN, cancel, job_states
from golf.jobs.cluster.status import find_record
from golf.jobs.cluster.submit import read_submitted
from golf.jobs.sweep.record import sweep_folder


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        record = find_record(sys.argv[1])
        sent = [job for _, job in read_submitted(sweep_folder(record.name) / "submitted.jsonl")]
        left = [job for job, state in job_states(sent).items() if state in OPEN]
        cancel(left)
    except GolfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{len(left)} of {len(sent)} jobs were waiting or running and are cancelled")
    return 0


if __name__ == "__main__":
    sys.exit(main())
