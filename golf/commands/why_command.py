"""Show the settings in which two runs or overrides differ.

golf why multirun/9l-int8-1234abcd/seed1 multirun/9l-int8-5678cdef/seed1
golf why "model=11l seed=2" "model=9l"
"""

from __future__ import annotations

from golf.commands.parsing import CommandParser


def parser() -> CommandParser:
    """Return the parser of `golf why`."""
    made = CommandParser("why", __doc__)
    made.add_argument("variants", nargs="*", metavar="A B", help="run folder, variant or quoted overrides, two of them")
    return made


def main(arguments: list[str]) -> int:
    """Print the differences."""
    args = parser().parse_intermixed_args(arguments)
    from golf.report.why import why

    return why(args.variants)
