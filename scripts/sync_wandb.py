"""Upload runs to W&B from their folders: `python scripts/sync_wandb.py [folders]`, by default everything in multirun/.

Takes runs, reports of sweeps and imported submissions: what was recorded offline, what did not get through and what was
run without `track=wandb`. A run that is there already is left out unless it has changed. Mirroring a run again replaces
it, so nothing appears twice. The first failure ends the command.
"""

import argparse
import sys
from pathlib import Path

from golf.errors import GolfError
from golf.jobs.track.backfill import back_fill, folders, has_ended, pending, settings_of, unhurried
from golf.jobs.track.companion import check_installed
from golf.run.folder import runs_root


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, help="runs, variants, sweeps or folders of them")
    parser.add_argument("--project", help="instead of the run's own")
    parser.add_argument("--entity", help="team or user, instead of the run's own")
    parser.add_argument("--offline", action="store_true", help="write W&B's local files only")
    parser.add_argument("--again", action="store_true", help="also what has been uploaded")
    parser.add_argument("--unfinished", action="store_true", help="also runs without a result: going on or killed")
    a = parser.parse_args()
    try:
        check_installed()
        found = folders(a.folders or [runs_root()])
        wanted = [f for f in found if a.again or pending(f, offline=a.offline)]
        ready = [f for f in wanted if a.unfinished or has_ended(f)]
        for number, folder in enumerate(ready, start=1):
            mode = "offline" if a.offline else "online"
            record = back_fill(folder, unhurried(settings_of(folder), mode, a.project, a.entity))
            if record is None:
                if rest := len(ready) - number:
                    print(f"error: {rest} more runs were not tried.", file=sys.stderr)
                return 1
            print(f"{number}/{len(ready)}  {folder}  {record.url or record.files}", flush=True)
    except GolfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    left_out = [f"{len(found) - len(wanted)} there already"] * (len(found) > len(wanted))
    left_out += [f"{len(wanted) - len(ready)} without a result (--unfinished takes them)"] * (len(wanted) > len(ready))
    print(", ".join([f"{len(ready)} mirrored", *left_out]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
