"""Read other people's runs and audit them: `python scripts/import_runs.py PATH…`.

PATH is a train log, a submission.json or a folder of any depth that holds some. The runs are kept under the runs root
(`imported/<name>/import.json`) and are rows of every table from then on. Without PATH: what was imported before.
"""

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console

from golf.errors import GolfError
from golf.foreign.import_store import import_folders, read_records, record, store
from golf.foreign.import_tables import as_csv, as_json, explanation, fault_lines, summary, table
from golf.report.imported import rows_of_record
from golf.report.summary import PLAIN_WIDTH
from golf.run.folder import runs_root


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH")
    parser.add_argument("--json", action="store_true", help="everything that was read, to standard output")
    parser.add_argument("--csv", action="store_true", help="one line a run, to standard output")
    parser.add_argument(
        "--explain", metavar="RUN", help="where each number of a run was read; part of its name will do"
    )
    parser.add_argument("--dry-run", action="store_true", help="read and show, keep nothing")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    try:
        records = _records(options)
        rows = [row for values in records for row in rows_of_record(values)]
        if options.explain:
            sys.stdout.write(explanation(records, options.explain))
        elif options.json or options.csv:
            sys.stdout.write(as_json(records) if options.json else as_csv(rows))
        else:
            _show(records, rows)
    except GolfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for line in summary(records) if options.json or options.csv else ():
        print(line, file=sys.stderr)
    return 0


def _records(options: argparse.Namespace) -> list[dict]:
    if not options.paths:
        return read_records(runs_root())
    records = []
    for found in import_folders(options.paths):
        values = record(found)
        records.append(values)
        if found.runs and not options.dry_run:
            store(values, runs_root())
    if not any(values["runs"] for values in records):
        why = next((f" ({f} {w})" for r in records for f, w in r["skipped_files"].items()), "")
        raise GolfError(
            f"No run was found in {', '.join(map(str, options.paths))}{why}: name train logs or submissions."
        )
    return records


def _show(records: list[dict], rows: list) -> None:
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    console.print(table(rows))
    for line in [*fault_lines(records), *summary(records)]:
        print(line)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # the reader, `head` for one, has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
