"""Train, quantize, pack and score one run, or a sweep with -m.

`golf train OVERRIDES` is `python golf/train.py OVERRIDES`.
"""

from __future__ import annotations

import sys

from golf.settings.usage import usage


def main(arguments: list[str]) -> int:
    """Run the main job; the exit status is 0 if all runs are `ok`, 1 if one is not, 2 for a mistake."""
    if {"-h", "--help"} & set(arguments):
        print(usage())
        return 0
    from golf.train import command_line

    return command_line([sys.argv[0], *arguments])
