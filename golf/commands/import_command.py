"""Read and audit other people's runs and keep them.

    golf import records/track_10min_16mb     # a train log, a submission.json or a folder of any depth that holds some
    golf import                              # show what was imported before

The runs are kept under the runs root (`imported/<name>/import.json`) and are rows of every table from then on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from golf.commands.parsing import CommandParser
from golf.errors import GolfError


def parser() -> CommandParser:
    """Return the parser of `golf import`."""
    made = CommandParser("import", __doc__)
    made.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="train logs, submission.json files, folders")
    made.add_argument("--json", action="store_true", help="print everything that was read as JSON")
    made.add_argument("--csv", action="store_true", help="print one line a run as CSV")
    explain = "show where each number of a run was read; part of the run's name is enough"
    made.add_argument("--explain", metavar="RUN", help=explain)
    made.add_argument("--dry-run", action="store_true", help="read and show the runs, keep nothing")
    return made


def main(arguments: Sequence[str]) -> int:
    """Import the runs and show them."""
    args = parser().parse_intermixed_args(arguments)
    from golf.foreign.import_tables import as_csv, as_json, explanation, summary
    from golf.report.imported_rows import rows_of_record

    records = _records(args)
    rows = [row for values in records for row in rows_of_record(values)]
    if args.explain:
        sys.stdout.write(explanation(records, args.explain))
    elif args.json or args.csv:
        sys.stdout.write(as_json(records) if args.json else as_csv(rows))
    else:
        _show(records, rows)
    if args.json or args.csv:
        for line in summary(records):
            print(line, file=sys.stderr)
    return 0


def _records(args: argparse.Namespace) -> list[dict]:
    """Return the records of the paths, or of everything imported before. Raises `GolfError` if there is no run."""
    from golf.foreign.import_store import import_folders, read_records, record, store
    from golf.run.folder import runs_root

    if not args.paths:
        return read_records(runs_root())
    records = []
    for found in import_folders(args.paths):
        values = record(found)
        records.append(values)
        if found.runs and not args.dry_run:
            store(values, runs_root())
    if not any(values["runs"] for values in records):
        why = next((f" ({f} {w})" for r in records for f, w in r["skipped_files"].items()), "")
        raise GolfError(f"No run was found in {', '.join(map(str, args.paths))}{why}: name train logs or submissions.")
    return records


def _show(records: list[dict], rows: list) -> None:
    from rich.console import Console

    from golf.foreign.import_tables import fault_lines, summary, table
    from golf.report.summary import PLAIN_WIDTH

    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    console.print(table(rows))
    for line in [*fault_lines(records), *summary(records)]:
        print(line)
