"""The command `golf`: it lists the subcommands, runs the one that is named, and turns errors into exit statuses."""

from __future__ import annotations

import difflib
import importlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from golf.errors import GolfError, without_environment
from golf.files import DISK_REFUSES
from golf.paths import ROOT
from golf.words import print_in_any_encoding

GROUPS = {
    "Set up": ("doctor", "data get", "data tokenize", "completion", "help settings"),
    "Run": ("plan", "train", "submit", "status", "cancel", "from-env"),
    "Results": ("report", "board", "ledger", "power", "why"),
    "Artifacts": ("inspect", "quant-gap"),
    "Submissions": ("export", "audit", "import"),
    "Ideas": ("idea new", "idea check"),
    "Weights & Biases": ("sync",),
    "Speed": ("gpu-check", "bench"),
}
COMMANDS = tuple(name for names in GROUPS.values() for name in names)
FOLDER = Path(__file__).parent
HELP = ("-h", "--help")
OWN_PACKAGES = ("golf", "hydra_plugins", "bench", "scripts")
EXIT_USAGE, EXIT_INTERRUPTED = 2, 130


def main(arguments: list[str] | None = None) -> int:
    """Run `golf` with `arguments`, by default those of this process, and return the exit status."""
    return exit_status(lambda: _dispatch(list(sys.argv[1:] if arguments is None else arguments)))


def module_of(command: str) -> str:
    """Return the name of the module behind a subcommand, such as `golf.commands.data_get_command`."""
    return f"golf.commands.{command.replace(' ', '_').replace('-', '_')}_command"


def exit_status(run: Callable[[], int]) -> int:
    """Return the exit status of a command: what `run` returns, or what its error or Ctrl-C stands for."""
    print_in_any_encoding()
    try:
        status = _status_of(run)
        # Flushed here, so that a reader who has gone away is noticed below.
        sys.stdout.flush()
    except GolfError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE
    except ModuleNotFoundError as error:
        # A module of golf itself that is missing is a fault in golf, whose traceback is needed.
        if (error.name or "").partition(".")[0] in OWN_PACKAGES:
            raise
        print(f"error: {without_environment(error)}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader, such as `head`, has what it wants.
        _drop_output()
        return 0
    except OSError as error:
        # Any command may meet a file or folder of somebody else, or print onto a full disk.
        if error.errno not in DISK_REFUSES:
            raise
        what = error.filename or "The output"
        print(f"error: {what} cannot be opened or written ({error.strerror}).", file=sys.stderr)
        if error.filename is None:
            _drop_output()
        return EXIT_USAGE
    return status


def _drop_output() -> None:
    """Send what is still buffered nowhere: Python would complain again when it flushes at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _status_of(run: Callable[[], int]) -> int:
    """Return the status that `run` returns or exits with, as argparse does after `--help` and after a mistake.

    Raises `KeyboardInterrupt` after Ctrl-C, whatever error became of it: Hydra and half-done imports raise their own.
    """
    interrupts: list[int] = []

    def interrupt(number: int, frame: object) -> NoReturn:
        interrupts.append(number)
        raise KeyboardInterrupt

    # A process in the background ignores the signal, and a run of the library may have a handler of its own.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        return run()
    except Exception:
        if interrupts:
            raise KeyboardInterrupt from None
        raise
    except SystemExit as end:
        # Python itself prints a text that a program exits with.
        if isinstance(end.code, str):
            raise
        return end.code or 0


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
