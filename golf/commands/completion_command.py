"""Print the script for the Tab key in bash, zsh or fish.

    eval "$(golf completion bash)"       # in ~/.bashrc
    eval "$(golf completion zsh)"        # in ~/.zshrc, after compinit
    golf completion fish | source        # in ~/.config/fish/config.fish

The scripts call `golf completion words LINE`, which prints the candidates for the last word of a command line.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from golf.commands import train_command
from golf.commands.cli import COMMANDS, HELP
from golf.commands.parsing import CommandParser
from golf.paths import ROOT
from golf.settings.names import setting_keys
from golf.settings.usage import options_of

SCRIPTS = Path(__file__).with_name("completion_scripts")
CONF = ROOT / "conf"
RUN_SCALARS = ("seed", "name", "note", "tags", "drop", "ideas")  # settings of a run outside every group


def main(arguments: list[str]) -> int:
    """Print a shell's script, or the candidates for the last word of a command line."""
    args = CommandParser("completion", __doc__).parse_intermixed_args(arguments)
    if args.shell == "words":
        typed = args.line.split()[1:]
        if args.line[-1:].isspace() or not typed:
            # After a blank a new word begins, of which nothing is typed yet.
            typed.append("")
        print("\n".join(candidates(typed)))
    else:
        print((SCRIPTS / f"golf.{args.shell}").read_text(encoding="utf-8"), end="")
    return 0


def candidates(words: list[str]) -> list[str]:
    """Return the words that can stand in place of the last of `words`, which are what was typed after `golf`."""
    current = words[-1]
    return sorted({word for word in _possible(words[:-1], current) if word.startswith(current)})


def _possible(before: list[str], current: str) -> Iterable[str]:
    for length in (2, 1):
        if (command := " ".join(before[:length])) in COMMANDS:
            return _of_command(command, before[length:], current)
    if not before:
        return HELP if current.startswith("-") else [command.partition(" ")[0] for command in COMMANDS]
    return [command.removeprefix(f"{before[0]} ") for command in COMMANDS if command.startswith(f"{before[0]} ")]


def _of_command(command: str, before: list[str], current: str) -> Iterable[str]:
    actions = (train_command.parser() if command == "train" else CommandParser(command, None))._actions
    # `golf bench` hands its arguments to a script, and has nothing but --help.
    if len(actions) == 1:
        return _overrides(current)
    for action in actions:
        if before[-1:] and before[-1] in action.option_strings and action.nargs != 0:
            return _values(action, current)
    if current.startswith("-"):
        return [name for action in actions for name in action.option_strings]
    return [word for action in actions if not action.option_strings for word in _values(action, current)]


def _values(action: argparse.Action, current: str) -> Iterable[str]:
    """Return the values of an option or a positional argument; none for a path, which the shell completes itself."""
    if action.choices:
        return map(str, action.choices)
    if action.dest == "overrides":
        return _overrides(current)
    return NAMES[action.dest]() if action.type is not Path and action.dest in NAMES else ()


def _overrides(current: str) -> Iterable[str]:
    """Return overrides of golf train: groups, their options, and settings once a group and a dot are typed."""
    if match := re.fullmatch(r"(\+*)([\w/]+)=(.*)", current):
        # Only the last of several options is completed: model=4l,9 and tech=[bigram,sw are under way.
        typed = re.sub(r"[^\[,]*$", "", match[3])
        return [f"{match[1]}{match[2]}={typed}{option}" for option in options_of(match[2])]
    keys = [key for key in setting_keys() if "." in key]
    if "." in current:
        return [f"{key}=" for key in keys]
    # Hydra adds a group that is not among the defaults only with a plus before it, so sweep is listed below.
    groups = [path.name for path in CONF.iterdir() if path.is_dir() and path.name != "sweep"]
    settable = (*groups, *RUN_SCALARS, "+tech", "+sweep")
    return [*(f"{name}=" for name in settable), *(f"{key.partition('.')[0]}." for key in keys)]


def _sweeps() -> list[str]:
    from golf.run.folder import runs_root

    return [path.parent.name for path in runs_root().glob("sweeps/*/sweep.json")]


def _variants() -> list[str]:
    from golf.run.folder import runs_root

    return sorted({path.parent.parent.name for path in runs_root().glob("*/seed*/config.json")})


NAMES: dict[str, Callable[[], list[str]]] = {  # name of an argument → its values
    "what": _sweeps,
    "runs": _sweeps,
    "sweep": _sweeps,
    "variants": _variants,
    "rules": lambda: options_of("rules"),
    "presets": lambda: options_of("quant"),
}
