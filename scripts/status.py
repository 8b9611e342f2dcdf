"""How the runs of a sweep stand: `python scripts/status.py SWEEP`. --watch goes on looking until all have ended."""

import sys
import time

from rich.console import Console
from rich.live import Live

from golf.errors import GolfError
from golf.jobs.cluster.show import status_table
from golf.jobs.cluster.status import RUNNING, WAITING, find_record, sweep_status

SECONDS_BETWEEN = 5.0


def main() -> int:
    names = [a for a in sys.argv[1:] if not a.startswith("-")]
    if len(names) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        record = find_record(names[0])
        lines = sweep_status(record)
        if "--watch" not in sys.argv:
            Console().print(status_table(lines, record.name))
            return 0
        with Live(status_table(lines, record.name), auto_refresh=False) as live:
            while any(line.state in (RUNNING, WAITING) for line in lines):
                time.sleep(SECONDS_BETWEEN)
                lines = sweep_status(record)
                live.update(status_table(lines, record.name), refresh=True)
    except GolfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
