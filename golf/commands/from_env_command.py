"""Translate a public command line into overrides.

    golf from-env "MATRIX_LR=0.06 torchrun --nproc_per_node=8 train_gpt.py"
    golf from-env --script records/X/train_gpt.py "ROPE_TRAIN_SEQ_LEN=2048 torchrun train_gpt.py"
    golf from-env --script records/X

The overrides printed are the same experiment. Variables without effect in the public scripts are named on standard
error. Parts that the overrides lack are named there, too, and the exit status is then 1: modules, operations and
quantizers that no known script has, and defaults without a counterpart. A script whose functions are a record's is that
record's preset with what its variables change.

Families of scripts use one name for several things, so --script reads the script that the command starts, without
running it. The script's defaults fill in what the command leaves open, and what the script always has, such as its
loader, is added. Variables that the script lacks or never reads, and those without a counterpart here, are named. In a
log, or a record folder without a script, --script reads the script that a log echoes, else the settings that a log
prints. Without --script the defaults are those of the first baseline. The parameters of the script's model are counted
from its source, or taken from the log, and compared with those of the overrides' model.
"""

from __future__ import annotations

import re
import shlex
import sys

from golf.commands.parsing import CommandParser
from golf.errors import GolfError

COMMAND = re.compile(r"(^|\s)([A-Za-z_]\w*=|python|torchrun)|\.py(\s|$)")  # what some command line of a script has
FOLDER = re.compile(r"(?<![\w./-])[^\s\"';&|]+/[\w.-]+\.py\b")  # a script in a folder
BASELINE = "2026-03-17_NaiveBaseline"
DEFAULTS = "defaults are those of the first baseline; --script FILE takes those of the script that the command starts"


def main(arguments: list[str]) -> int:
    """Print the overrides; the exit status is 1 if they are not the whole experiment."""
    args = CommandParser("from-env", __doc__).parse_intermixed_args(arguments)
    if not args.script and not COMMAND.search(args.line):
        example = '"MATRIX_LR=0.06 torchrun train_gpt.py"'
        raise GolfError(f"from-env got no command line: write one in quotes, such as {example}, or name a --script.")
    from golf.field.script_translation import translated_script
    from golf.field.script_variables import ScriptVariables, public_variables

    try:
        script = public_variables(args.script) if args.script else ScriptVariables()
        translated = translated_script(args.line, script, declares=bool(args.script))
    except RecursionError:
        raise GolfError(f"{args.script} is nested too deeply to be read: name its log instead.") from None
    translation = translated.translation
    print(shlex.join(translated.overrides))
    for sentence in translation.without_effect:
        print(f"no effect in the public scripts, so not in the list: {sentence}", file=sys.stderr)
    if translation.machine:
        print(f"settings of the machine, not of the experiment: {' '.join(translation.machine)}", file=sys.stderr)
    idle = translation.idle_defaults if translated.record is None else []
    notes = [
        ("the script declares and never reads", sorted(script.unread)),
        ("of techniques without a switch; select those that the script always has", idle),
    ]
    if not args.script:
        print(DEFAULTS, file=sys.stderr)
    missing = translated.missing if args.script else [*translated.missing, *_unread_script(args.line)]
    for sentence in [*(f"{start}: {' '.join(names)}" for start, names in notes if names), *missing]:
        print(sentence, file=sys.stderr)
    return 1 if missing else 0


def _unread_script(line: str) -> list[str]:
    """Return a sentence if the command starts a script out of a folder, whose defaults nobody has read."""
    scripts = [word for word in FOLDER.findall(line) if BASELINE not in word]
    return (
        [f"the defaults are the first baseline's and not those of {scripts[-1]}: name it by --script"]
        if scripts
        else []
    )
