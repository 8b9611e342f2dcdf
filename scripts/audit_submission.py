"""Look at a submission, anybody's, without running it: `python scripts/audit_submission.py FOLDER`.

Files, script, bytes, logs against claims, seeds; significance with --reference; the tokenizer's bytes with --tokenizer,
against whole documents with --data, against raw text with --text. The exit status is 0 without a fault, 1 with one, 2
if nothing could be audited; what is only to be looked at does not change it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from golf.errors import GolfError
from golf.foreign.audit import Audit
from golf.foreign.byte_audit import audit_bytes
from golf.foreign.folder_audit import audit
from golf.foreign.reference import reference_of
from golf.settings.composition import rules_named

TITLES = {
    "against_rules": "against the rules: such a submission does not count",
    "unusable": "missing or unreadable: add or mend",
    "untrue": "claims that are not so: correct the claim, or add the log that bears it out",
    "look_at": "to look at: may be right, but a reviewer will ask",
    "in_order": "in order",
    "unchecked": "not checked",
}


def main(arguments: list[str] | None = None) -> int:
    args = _parser().parse_args(arguments)
    try:
        reference = reference_of(args.reference) if args.reference else None
        found = audit(args.folder, reference, rules_named(args.rules))
        audit_bytes(args.folder, args.tokenizer, args.data, args.text, found)
    except GolfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{args.folder}: {_summary(found)}")
    for name, title in TITLES.items():
        if lines := getattr(found, name):
            print(f"\n{title}")
            print("\n".join(f"  - {line}" for line in lines))
    return 1 if found.faults else 0


def _summary(found: Audit) -> str:
    faults, look_at = len(found.faults), len(found.look_at)
    first = "no fault found" if not faults else "1 fault" if faults == 1 else f"{faults} faults"
    return f"{first}, {look_at} to look at, {len(found.unchecked)} not checked"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--reference", metavar="BPB|FOLDER", help="to be better than: a published score, runs, or another submission"
    )
    parser.add_argument("--rules", default="strict", metavar="NAME", help="strict (default), house, frontier")
    parser.add_argument("--tokenizer", type=Path, metavar="FILE", help="SentencePiece model (default: one in FOLDER)")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="folder of validation shards")
    parser.add_argument("--text", type=Path, metavar="FILE", help="raw documents (.jsonl, .txt, a folder of them)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
