"""The argument parser that all commands share; options.yaml has their arguments."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any, NoReturn

from golf.tables import table_of

EXIT_USAGE = 2


def standard_deviation(text: str) -> float:
    """Return the number that `text` says. Raises argparse's error for one that cannot be a standard deviation."""
    if not (math.isfinite(sd := float(text)) and sd > 0):
        raise argparse.ArgumentTypeError(f"{text} cannot be a standard deviation: give one above 0")
    return sd


TYPES = {"int": int, "float": float, "path": Path, "sd": standard_deviation}


class CommandParser(argparse.ArgumentParser):
    """Argument parser of `golf COMMAND` with the arguments of options.yaml, which answers a mistake in one sentence.

    `known` are further words of argparse by the name of the argument, such as a default that is computed.
    """

    def __init__(self, command: str, description: str | None, **known: dict[str, Any]) -> None:
        super().__init__(
            prog=f"golf {command}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        tables = table_of(__file__, "options.yaml")
        for name, told in tables.get(command, {}).items():
            words = {"help": told} if isinstance(told, str) else told or {}
            words = {**({} if "help" in words else tables["shared"][name]), **words}
            words |= known.get(name.lstrip("-").replace("-", "_"), {})
            if "type" in words:
                words["type"] = TYPES[words["type"]]
            self.add_argument(name, **words)

    def error(self, message: str) -> NoReturn:
        """Print the mistake and exit with status 2."""
        print(f"error: {message}; see `{self.prog} --help`.", file=sys.stderr)
        sys.exit(EXIT_USAGE)
