"""The command `golf`: it lists the subcommands, runs the one that is named, and turns errors into exit statuses."""

from __future__ import annotations

import difflib
import importlib
import sys
from pathlib import Path

from golf.errors import GolfError
from golf.exits import exit_status
from golf.paths import ROOT

GROUPS = {
    "Set up": ("doctor", "data get", "data tokenize", "help settings"),
    "Run": ("plan", "train", "keep", "submit", "status", "follow", "stop", "cancel", "from-env"),
    "Results": ("report", "board", "expect", "ledger", "power", "why"),
    "Artifacts": ("inspect", "quant-gap"),
    "Submissions": ("export", "audit", "import"),
    "Ideas": ("idea new", "idea check"),
    "Weights & Biases": ("sync",),
    "Speed": ("gpu-check", "bench"),
}
COMMANDS = tuple(name for names in GROUPS.values() for name in names)
FOLDER = Path(__file__).parent
HELP = ("-h", "--help")


def main(arguments: list[str] | None = None) -> int:
    """Run `golf` with `arguments`, by default those of this process, and return the exit status."""
    return exit_status(lambda: _dispatch(list(sys.argv[1:] if arguments is None else arguments)))


def module_of(command: str) -> str:
    """Return the name of the module behind a subcommand, such as `golf.commands.data_get_command`."""
    return f"golf.commands.{command.replace(' ', '_').replace('-', '_')}_command"


def _dispatch(given: list[str]) -> int:
    if not (ROOT / "conf").is_dir():
        raise GolfError(f"{ROOT} has no conf/: install golf by `pip install -e .` in a clone of the repository.")
    if not given or given[0] in HELP or given == ["help"]:
        print(overview())
        return 0
    if given[0] == "help" and given[1] != "settings":
        topic = given[1:]
        is_command = any(command.split()[0] == topic[0] for command in COMMANDS)
        given = [*topic, "--help"] if is_command else ["help", "settings", *topic]
    if given[0] in ("--version", "version"):
        from golf.run.environment import golf_version

        print(f"golf {golf_version()}")
        return 0
    for words in (2, 1):
        if (command := " ".join(given[:words])) in COMMANDS:
            rest = given[words:]
            # Hydra reads the arguments there, and the records of runs keep them.
            sys.argv = [f"golf {command}", *rest]
            return importlib.import_module(module_of(command)).main(rest)
    family = [command for command in COMMANDS if command.startswith(f"{given[0]} ")]
    if family and set(HELP) & set(given[1:]):
        print("\n".join(map(_line, family)))
        return 0
    raise GolfError(_unknown(given, family))


def _unknown(given: list[str], family: list[str]) -> str:
    """Return the sentence about a word that is no command; `family` are the commands that begin with its first word."""
    if family and len(given) == 1:
        return f"golf {given[0]} is followed by {' or '.join(name.partition(' ')[2] for name in family)}."
    typed = " ".join(given[:2]) if family else given[0]
    close = difflib.get_close_matches(typed.lower(), family or COMMANDS, n=1, cutoff=0.7)
    advice = f"did you mean golf {close[0]}?" if close else "`golf --help` lists all."
    return f"There is no command golf {typed}; {advice}"


def overview() -> str:
    """Return the text of `golf --help`: every command with its line, in groups."""
    lines = ["golf COMMAND [argument …]", "", "Train the best language model in 16,000,000 bytes.", ""]
    for title, commands in GROUPS.items():
        lines += [title, *map(_line, commands), ""]
    return "\n".join([*lines, "`golf COMMAND --help` explains a command, `golf --version` names the version."])


def _line(command: str) -> str:
    return f"  {command:15} {summary(command)}"


def summary(command: str) -> str:
    """Return the first line of the command's file. Importing 23 modules for it would take most of a second."""
    with (FOLDER / f"{module_of(command).rpartition('.')[2]}.py").open(encoding="utf-8") as file:
        return file.readline().strip().strip('"').rstrip(".")


if __name__ == "__main__":
    sys.exit(main())
