"""Train, quantize, pack and score one run, or a sweep with -m.

`golf train OVERRIDES` is `python golf/train.py OVERRIDES`.
"""

from __future__ import annotations

import sys

from golf.commands.parsing import CommandParser
from golf.settings.usage import FLAGS, usage


def parser() -> CommandParser:
    """Return the parser that shell completion reads the flags from; Hydra parses the command itself."""
    made = CommandParser("train", __doc__)
    for flags in FLAGS:
        names = [flag.split()[0] for flag in flags.split(", ")]
        if values := len(flags.split(", ")[-1].split()) - 1:
            made.add_argument(*names, nargs=values)
        else:
            made.add_argument(*names, action="store_true")
    made.add_argument("overrides", nargs="*")
    return made


def main(arguments: list[str]) -> int:
    """Run the main job; the exit status is 0 if all runs are `ok`, 1 if one is not, 2 for a mistake."""
    if {"-h", "--help"} & set(arguments):
        print(usage())
        return 0
    from golf.train import command_line

    # Hydra reads its overrides there.
    sys.argv[1:] = arguments
    return command_line()
