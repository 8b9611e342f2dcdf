"""Read and audit other people's runs and keep them.

    golf import records/track_10min_16mb     # a train log, a submission.json or a folder of any depth that holds some
    golf import                              # show what was imported before
    golf import --filter 'val_bpb<1.1' --filter state=ok --sort val_bpb      # a part of it, the best first
    golf import --filter fault=cap           # all that are over the cap

The runs are kept under the runs root (`imported/<name>/import.json`) and are rows of every table from then on.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from golf.commands.parsing import CommandParser
from golf.errors import GolfError

if TYPE_CHECKING:
    from golf.field.imported_entries import Entry


def main(arguments: list[str]) -> int:
    """Import the runs and show them."""
    args = CommandParser("import", __doc__).parse_intermixed_args(arguments)
    from golf.field.import_tables import as_csv, as_json, explanation, summary
    from golf.field.imported_entries import chosen, entries_of, ordered

    # Conditions are read before anything is stored.
    chosen([], args.filter)
    ordered([], args.sort or "name")
    records = _records(args)
    entries = chosen(entries_of(records), args.filter)
    entries = ordered(entries, args.sort) if args.sort else entries
    if args.explain:
        sys.stdout.write(explanation(records, args.explain))
    elif args.json:
        names = {id(entry.run) for entry in entries}
        shown = [{**r, "runs": [run for run in r["runs"] if id(run) in names]} for r in records]
        sys.stdout.write(as_json([record for record in shown if record["runs"] or not args.filter]))
    elif args.csv:
        sys.stdout.write(as_csv([entry.row for entry in entries]))
    else:
        _show(entries, summary(records), by_submission=args.sort is None)
    if args.json or args.csv:
        for line in summary(records):
            print(line, file=sys.stderr)
    return 0


def _records(args: argparse.Namespace) -> list[dict]:
    """Return the records of the paths, or of everything imported before. Raises `GolfError` if there is no run."""
    from golf.field.import_store import import_folders, read_records, record, store
    from golf.run.folder import runs_root

    if not args.paths:
        return read_records(runs_root())
    records = []
    for folder in import_folders(args.paths):
        values = record(folder)
        records.append(values)
        if folder.runs and not args.dry_run:
            store(values, runs_root())
    if not any(values["runs"] for values in records):
        why = next((f" ({f} {w})" for r in records for f, w in r["skipped_files"].items()), "")
        raise GolfError(f"No run was found in {', '.join(map(str, args.paths))}{why}: name train logs or submissions.")
    return records


def _show(entries: list[Entry], summary: list[str], *, by_submission: bool) -> None:
    from golf.field.import_tables import counts, fault_lines, table
    from golf.run.summary import PLAIN_WIDTH
    from golf.words import text_width

    lines = [
        table(entries, text_width(PLAIN_WIDTH), by_submission=by_submission),
        "",
        *fault_lines(entries),
        counts(entries),
        *summary,
    ]
    # Of the empty lines only the one below the table is meant.
    print("\n".join(line for number, line in enumerate(lines) if line or number == 1))
