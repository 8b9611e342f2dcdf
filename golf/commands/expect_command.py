"""Say whether a run's losses are those that they should be.

The reference is a public record, or finished seeds of one's own. Losses are compared as soon as both share a step, so a
run that is not what it should be is known after minutes.

    golf expect multirun/9l-1234abcd/seed1 2026-03-18_lower_lr      # a record of docs/records.md
    golf expect multirun/9l-5678cdef multirun/9l-1234abcd           # every seed of a variant, beside another variant
"""

from __future__ import annotations

from dataclasses import asdict

from golf.commands.parsing import CommandParser
from golf.words import answer


def main(arguments: list[str]) -> int:
    """Print a sentence about each run and return 1 if any differs."""
    args = CommandParser("expect", __doc__).parse_intermixed_args(arguments)
    from golf.lab.report.expectation import DIFFERS, expectations

    found = expectations(args.run, args.reference)
    print(answer(list(map(asdict, found))) if args.json else "\n".join(one.sentence() for one in found))
    return int(any(one.verdict == DIFFERS for one in found))
