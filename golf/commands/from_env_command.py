"""Translate a public command line into overrides.

    golf from-env "MATRIX_LR=0.06 torchrun --nproc_per_node=8 train_gpt.py"

The overrides printed are the same experiment. Variables without effect in the public scripts are named on standard
error. So are variables without a counterpart, and the exit status is then 1, because the overrides are another
experiment without them.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from golf.commands.parsing import CommandParser


def parser() -> CommandParser:
    """Return the parser of `golf from-env`."""
    made = CommandParser("from-env", __doc__)
    made.add_argument("line", help="the whole command line in quotes")
    return made


def main(arguments: Sequence[str]) -> int:
    """Print the overrides; the exit status is 1 if a variable is not known."""
    args = parser().parse_intermixed_args(arguments)
    from golf.settings.composition import compose
    from golf.settings.env_vars import translate

    translation = translate(args.line)
    compose(translation.overrides)  # raises if the values do not fit the settings
    print(shlex.join(translation.overrides))
    for sentence in translation.without_effect:
        print(f"no effect in the public scripts, so not in the list: {sentence}", file=sys.stderr)
    if translation.machine:
        print(f"settings of the machine, not of the experiment: {' '.join(translation.machine)}", file=sys.stderr)
    if translation.unknown:
        print(f"not known here, so not in the list: {' '.join(translation.unknown)}", file=sys.stderr)
        return 1
    return 0
