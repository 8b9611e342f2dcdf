"""List everything that was tried, with intervals and verdicts.

All finished variants are compared with their references. Negative results are included.
"""

from __future__ import annotations

from golf.commands.parsing import CommandParser
from golf.errors import GolfError


def main(arguments: list[str]) -> int:
    """Print the ledger."""
    args = CommandParser("ledger", __doc__).parse_intermixed_args(arguments)
    from golf.lab.report.ledger import ledger
    from golf.lab.report.table import render
    from golf.run.folder import runs_root
    from golf.settings.composition import rules_named

    if not (table := ledger(rules_named(args.rules), score=args.score, sigma=args.sigma)).rows:
        raise GolfError(f"Nothing has finished under {runs_root()} yet: GOLF_RUNS names another folder of runs.")
    print(render(table, args.format), end="")
    return 0
