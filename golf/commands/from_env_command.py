"""Translate a public command line into overrides.

    golf from-env "MATRIX_LR=0.06 torchrun --nproc_per_node=8 train_gpt.py"
    golf from-env --script records/X/train_gpt.py "ROPE_TRAIN_SEQ_LEN=2048 torchrun train_gpt.py"

The overrides printed are the same experiment. Variables without effect in the public scripts are named on standard
error. So are variables without a counterpart, and the exit status is then 1, because the overrides are another
experiment without them. Families of scripts use one name for several things: --script reads the one that the command
starts, without running it, puts its defaults under what the command sets, and names what it does not have or never
reads. Without --script the defaults are those of the first baseline.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from golf.commands.parsing import CommandParser


def parser() -> CommandParser:
    """Return the parser of `golf from-env`."""
    made = CommandParser("from-env", __doc__)
    made.add_argument("line", help="the whole command line in quotes")
    made.add_argument("--script", type=Path, metavar="FILE", help="script that the command line starts")
    return made


def main(arguments: Sequence[str]) -> int:
    """Print the overrides; the exit status is 1 if a variable is not known."""
    args = parser().parse_intermixed_args(arguments)
    from golf.foreign.script_variables import ScriptVariables, script_variables
    from golf.settings.composition import compose
    from golf.settings.env_vars import translate

    script = script_variables(args.script) if args.script else ScriptVariables()
    translation = translate(args.line, unread=script.unread, declared=script.defaults if args.script else None)
    # Composing raises if the values do not fit the settings.
    compose(translation.overrides)
    print(shlex.join(translation.overrides))
    for sentence in translation.without_effect:
        print(f"no effect in the public scripts, so not in the list: {sentence}", file=sys.stderr)
    if translation.machine:
        print(f"settings of the machine, not of the experiment: {' '.join(translation.machine)}", file=sys.stderr)
    if translation.idle_defaults:
        names = " ".join(translation.idle_defaults)
        print(f"of techniques without a switch; select those that the script always has: {names}", file=sys.stderr)
    if translation.unknown:
        print(f"not known here, so not in the list: {' '.join(translation.unknown)}", file=sys.stderr)
    return 1 if translation.unknown else 0
