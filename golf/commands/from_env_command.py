"""Translate a public command line into overrides.

    golf from-env "MATRIX_LR=0.06 torchrun --nproc_per_node=8 train_gpt.py"
    golf from-env --script records/X/train_gpt.py "ROPE_TRAIN_SEQ_LEN=2048 torchrun train_gpt.py"
    golf from-env --script records/X

The overrides printed are the same experiment. Variables without effect in the public scripts are named on standard
error. Parts that the overrides lack are named there, too, and the exit status is then 1: modules, operations and
quantizers that no known script has, and defaults without a counterpart.

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
from typing import TYPE_CHECKING

from golf.commands.parsing import CommandParser
from golf.errors import GolfError

if TYPE_CHECKING:
    from golf.field.script_variables import ScriptVariables
    from golf.field.translation import Translation
    from golf.settings.config import Config

COMMAND = re.compile(r"(^|\s)([A-Za-z_]\w*=|python|torchrun)|\.py(\s|$)")  # what some command line of a script has
UNREAD = 1e-5  # share of the parameters that scripts keep and never read, such as lanes of layers without lanes


def main(arguments: list[str]) -> int:
    """Print the overrides; the exit status is 1 if they are not the whole experiment."""
    args = CommandParser("from-env", __doc__).parse_intermixed_args(arguments)
    if not args.script and not COMMAND.search(args.line):
        example = '"MATRIX_LR=0.06 torchrun train_gpt.py"'
        raise GolfError(f"from-env got no command line: write one in quotes, such as {example}, or name a --script.")
    from golf.field.env_vars import translate
    from golf.field.script_variables import ScriptVariables, public_variables
    from golf.settings.composition import compose

    script = public_variables(args.script) if args.script else ScriptVariables()
    declared = script.defaults if args.script else None
    translation = translate(args.line, unread=script.unread, declared=declared, structure=script.structure)
    # Composing raises if the values do not fit the settings.
    cfg = compose(translation.overrides)
    print(shlex.join(translation.overrides))
    for sentence in translation.without_effect:
        print(f"no effect in the public scripts, so not in the list: {sentence}", file=sys.stderr)
    if translation.machine:
        print(f"settings of the machine, not of the experiment: {' '.join(translation.machine)}", file=sys.stderr)
    missing = [*_missing(script, translation), *_other_model(script, translation, cfg)]
    notes = [
        ("the script declares and never reads", sorted(script.unread)),
        ("of techniques without a switch; select those that the script always has", translation.idle_defaults),
    ]
    for sentence in [*(f"{start}: {' '.join(names)}" for start, names in notes if names), *missing]:
        print(sentence, file=sys.stderr)
    return 1 if missing else 0


def _missing(script: ScriptVariables, translation: Translation) -> list[str]:
    """Return sentences about what the overrides lack of the experiment."""
    lines = []
    if not script.is_script:
        lines.append(
            "the log prints settings and not the script, so what that always has is not in the list: its loader, "
            "averaging, initialisation and quantization"
        )
    if script.structure.missing:
        lines.append(f"the script always has this, which is not in the list: {'; '.join(script.structure.missing)}")
    if translation.inexpressible:
        lines.append(f"defaults of the script without a counterpart here: {' '.join(translation.inexpressible)}")
    if translation.unknown:
        lines.append(f"not known here, so not in the list: {' '.join(translation.unknown)}")
    return lines


def _other_model(script: ScriptVariables, translation: Translation, cfg: Config) -> list[str]:
    """Return a sentence if the log or the script counts other parameters than the model of `cfg` has."""
    from golf.field.parameter_count import UncountableError, parameter_count
    from golf.training.model.build import shapeless_model

    source, count = "log", script.model_params
    if count is None and script.tree is not None:
        try:
            source, count = "script", parameter_count(script.tree, {**script.printed, **translation.given})
        except UncountableError as error:
            return [f"the script's parameters cannot be counted: {error}; --script with a log compares them"]
    own = sum(parameter.numel() for parameter in shapeless_model(cfg).parameters())
    if count is None or abs(own - count) <= UNREAD * count:
        return []
    return [f"the {source} counts {count:,} parameters and this model has {own:,}: it is another one"]
