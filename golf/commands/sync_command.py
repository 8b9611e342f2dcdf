"""Upload runs and sweeps to W&B from their folders.

    golf sync              # everything in multirun/
    golf sync FOLDER

The command takes what was recorded offline, what did not get through and what ran without `track=wandb`. A run that is
already uploaded is left out unless it has changed. Uploading a run again replaces it, so nothing appears twice. The
first failure ends the command.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from golf.commands.parsing import CommandParser
from golf.words import counted


def main(arguments: list[str]) -> int:
    """Upload the runs; the exit status is 1 if one did not get through."""
    args = CommandParser("sync", __doc__).parse_intermixed_args(arguments)
    from golf.lab.track.backfill import folders, has_ended, pending
    from golf.lab.track.companion import check_installed
    from golf.run.folder import runs_root

    check_installed()
    known = folders(args.folders or [runs_root()])
    wanted = [f for f in known if args.again or pending(f, offline=args.offline)]
    ready = [f for f in wanted if args.unfinished or has_ended(f)]
    if not _upload(ready, args):
        return 1
    counts = [f"{len(ready)} mirrored"]
    if len(known) > len(wanted):
        counts.append(f"{len(known) - len(wanted)} there already")
    if len(wanted) > len(ready):
        counts.append(f"{len(wanted) - len(ready)} without a result (--unfinished takes them)")
    print(", ".join(counts))
    return 0


def _upload(ready: list[Path], args: argparse.Namespace) -> bool:
    """Upload the folders one after the other and return True, or False after the first failure."""
    from golf.files import refuse_unwritable
    from golf.lab.track.backfill import back_fill, settings_of, unhurried

    mode = "offline" if args.offline else "online"
    for number, folder in enumerate(ready, start=1):
        refuse_unwritable(folder / "track.log")
        record = back_fill(folder, unhurried(settings_of(folder), mode, args.project, args.entity))
        if record is None:
            if rest := len(ready) - number:
                print(f"error: {counted(rest, 'further run')} not tried.", file=sys.stderr)
            return False
        print(f"{number}/{len(ready)}  {folder}  {record.url or record.files}", flush=True)
    return True
