"""The argument parser that all commands share, and the options that several commands have."""

from __future__ import annotations

import argparse
import math
import sys
from typing import NoReturn

EXIT_USAGE = 2


def standard_deviation(text: str) -> float:
    """Return the number that `text` says. Raises argparse's error for one that cannot be a standard deviation."""
    if not (math.isfinite(sd := float(text)) and sd > 0):
        raise argparse.ArgumentTypeError(f"{text} cannot be a standard deviation: give one above 0")
    return sd


class CommandParser(argparse.ArgumentParser):
    """Argument parser of `golf COMMAND`, which answers a mistake in one sentence."""

    def __init__(self, command: str, description: str | None) -> None:
        super().__init__(
            prog=f"golf {command}",
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        """Print the mistake and exit with status 2."""
        print(f"error: {message}; see `{self.prog} --help`.", file=sys.stderr)
        sys.exit(EXIT_USAGE)

    def add_rules(self, default: str = "house") -> None:
        """Add `--rules`, the name of a file in conf/rules."""
        names = ("house", "strict", "frontier")
        listed = ", ".join(f"{name} (default)" if name == default else name for name in names)
        self.add_argument("--rules", default=default, metavar="NAME", help=f"rules of the verdict: {listed}")

    def add_published_text(self) -> None:
        """Add `--text`, the text of a published score: a key of `PUBLISHED_ON`."""
        from golf.report.texts import PUBLISHED_ON

        texts = "fineweb (default), older (the older export of its split), own (that of the runs)"
        names = list(PUBLISHED_ON)
        self.add_argument("--text", choices=names, help=f"text of the published score: {texts}")

    def add_table_format(self) -> None:
        """Add `--format`, how a table is printed."""
        from golf.report.table import FORMATS

        self.add_argument("--format", choices=FORMATS, default="text", help="format of the table (default: text)")

    def add_comparison(self) -> None:
        """Add `--sigma` and `--score`, how variants are compared."""
        from golf.report.variants import SCORES

        sigma = "standard deviation over seeds for variants with too few seeds"
        self.add_argument("--sigma", type=standard_deviation, metavar="BPB", help=sigma)
        self.add_argument("--score", choices=list(SCORES), help="score to compare (default: the one that counts)")
