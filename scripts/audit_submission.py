"""Look at a submission, anybody's, without running it: `python scripts/audit_submission.py FOLDER`.

Files, script, bytes, logs against claims, seeds; significance with --reference; the tokenizer's bytes with --tokenizer,
and against whole documents with --data. The exit status is 1 if there is a fault.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from golf.composition import rules_named
from golf.errors import GolfError
from golf.submission.audit import Audit, audit
from golf.submission.byte_audit import audit_documents, audit_tokenizer, open_tokenizer
from golf.submission.judgement import reference_of


def main(arguments: list[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    try:
        reference = reference_of(args.reference) if args.reference else None
        found = audit(args.folder, reference, rules_named(args.rules))
        _bytes(args, found)
    except GolfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for title, lines in (
        ("faults", found.faults),
        ("to look at", found.look_at),
        ("in order", found.in_order),
        ("not checked", found.unchecked),
    ):
        for line in lines:
            print(f"{title}: {line}")
    return 1 if found.faults else 0


def _bytes(args: argparse.Namespace, found: Audit) -> None:
    """The byte accounting of the tokenizer that was named, or of one in the folder."""
    path = args.tokenizer or next(iter(sorted(args.folder.glob("*.model"))), None)
    if path is None:
        found.unchecked.append("the tokenizer's byte counts: name it with --tokenizer, and its shards with --data")
        return
    tokenizer = open_tokenizer(path)
    faults = audit_tokenizer(tokenizer)
    documents = 0
    if args.data:
        documents, more = audit_documents(tokenizer, args.data, "*_val_*.bin")
        faults += more
    found.faults += [f"{path.name}: {fault}" for fault in faults]
    if not faults:
        what = f"{documents} whole documents" if documents else "samples with spaces and byte fallback"
        found.in_order.append(f"{path.name} counts the bytes of {what} as they decode")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--reference", metavar="BPB|FOLDER", help="a published score or runs, to be better than")
    parser.add_argument("--rules", default="strict", metavar="NAME", help="strict (default), house, frontier")
    parser.add_argument("--tokenizer", type=Path, metavar="FILE", help="SentencePiece model (default: one in FOLDER)")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="folder of validation shards")
    return parser


if __name__ == "__main__":
    sys.exit(main())
