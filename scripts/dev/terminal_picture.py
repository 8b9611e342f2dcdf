"""Draw what a command printed as a terminal window: `python scripts/dev/terminal_picture.py FILE.svg COMMAND < OUTPUT`.

The window is as wide as the terminal that the output was written for.
"""

import io
import sys

from rich.console import Console
from rich.text import Text


def main(file: str, command: str) -> None:
    """Write the picture of `command` and of its output, which is standard input, with the colours of the terminal."""
    text = Text.from_ansi(f"$ {command}\n{sys.stdin.read()}")
    width = max(len(line) for line in text.plain.splitlines())
    console = Console(record=True, width=width, file=io.StringIO(), highlight=False)
    console.print(text)
    console.save_svg(file, title=command)


if __name__ == "__main__":
    main(*sys.argv[1:])
