"""The argument parser that all commands share; options.yaml has their arguments."""

from __future__ import annotations

import argparse
import difflib
import math
import re
import sys
from pathlib import Path
from typing import Any, NoReturn

from golf.tables import table_of

EXIT_USAGE = 2


def positive(text: str) -> float:
    """Return the number that `text` says. Raises argparse's error for one that is not above 0, or not finite."""
    if not (math.isfinite(number := float(text)) and number > 0):
        raise argparse.ArgumentTypeError(f"{text} makes no sense here: give a number above 0")
    return number


def count(text: str) -> int:
    """Return the whole number that `text` says. Raises argparse's error for one below 0."""
    if (number := int(text)) < 0:
        raise argparse.ArgumentTypeError(f"{text} makes no sense here: give 0 or more")
    return number


TYPES = {"int": int, "count": count, "float": float, "positive": positive, "path": Path}


class CommandParser(argparse.ArgumentParser):
    """Argument parser of `golf COMMAND` with the arguments of options.yaml, which answers a mistake in one sentence.

    `known` are further words of argparse by the name of the argument, such as a default that is computed.
    """

    def __init__(self, command: str, description: str | None, **known: dict[str, Any]) -> None:
        as_written = argparse.RawDescriptionHelpFormatter
        super().__init__(prog=f"golf {command}", description=description, formatter_class=as_written)
        tables = table_of(__file__, "options.yaml")
        for name, told in tables.get(command, {}).items():
            words = {"help": told} if isinstance(told, str) else told or {}
            words = {**({} if "help" in words else tables["shared"][name]), **words}
            words |= known.get(name.lstrip("-").replace("-", "_"), {})
            if "type" in words:
                words["type"] = TYPES[words["type"]]
            if words.get("nargs") == "*":
                # Without a default argparse says that it is required.
                words.setdefault("default", [])
            self.add_argument(name, **words)

    def error(self, message: str) -> NoReturn:
        """Print the mistake and exit with status 2."""
        typed = re.fullmatch(r"unrecognized arguments: (--[\w-]+).*", message)
        flags = [flag for action in self._actions for flag in action.option_strings]
        if typed and (close := difflib.get_close_matches(typed[1], flags, n=1, cutoff=0.7)):
            message += f"; did you mean {close[0]}?"
        print(f"error: {message}{'' if message.endswith('?') else ';'} see `{self.prog} --help`.", file=sys.stderr)
        sys.exit(EXIT_USAGE)
