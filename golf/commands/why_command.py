"""Show what two runs, or a record and its parent, set differently.

golf why multirun/9l-int8-1234abcd/seed1 multirun/9l-int8-5678cdef/seed1
golf why "model=11l seed=2" "model=9l"
golf why 2026-04-27_caseops_lqer_9hp
"""

from __future__ import annotations

from golf.commands.parsing import CommandParser


def main(arguments: list[str]) -> int:
    """Print the differences."""
    args = CommandParser("why", __doc__).parse_intermixed_args(arguments)
    from golf.lab.report.why import why

    return why(args.variants, as_json=args.json)
