"""Audit a submission, anybody's, without running it.

    golf audit FOLDER

The audit covers files, script, bytes, seeds and logs against claims. --reference adds significance, --tokenizer the
tokenizer's bytes, --data a comparison with whole documents, --text one with raw text. The exit status is 0 without a
fault, 1 with a fault, 2 if nothing could be audited. Points that a reviewer should look at do not change it.
"""

from __future__ import annotations

from golf.commands.parsing import CommandParser
from golf.tables import table_of
from golf.words import answer, counted

TITLES = table_of(__file__)


def main(arguments: list[str]) -> int:
    """Print the audit; the exit status is 1 if the submission has a fault."""
    args = CommandParser("audit", __doc__).parse_intermixed_args(arguments)
    from golf.field.byte_audit import audit_bytes
    from golf.field.folder_audit import audit
    from golf.field.reference import reference_of
    from golf.settings.composition import rules_named

    report = audit(args.folder, reference_of(args.reference) if args.reference else None, rules_named(args.rules))
    audit_bytes(args.folder, args.tokenizer, args.data, args.text, report)
    if args.json:
        print(answer({"folder": args.folder, "faults": len(report.faults), **vars(report)}))
        return 1 if report.faults else 0
    faults = counted(len(report.faults), "fault") if report.faults else "no fault found"
    print(f"{args.folder}: {faults}, {len(report.look_at)} to look at, {len(report.unchecked)} not checked")
    for name, title in TITLES.items():
        if lines := getattr(report, name):
            print(f"\n{title}")
            print("\n".join(f"  - {line}" for line in lines))
    return 1 if report.faults else 0
