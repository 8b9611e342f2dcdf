"""Draw what a command printed as a terminal window: `python scripts/dev/terminal_picture.py FILE.svg COMMAND < OUTPUT`.

Longer lines than COLUMNS are broken at words. The picture loads no font: a page that shows it asks nobody.
"""

import io
import os
import sys

from rich.console import Console
from rich.text import Text

FORMAT = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; }}
.{unique_id}-title {{ font: bold 18px sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def main(file: str, command: str) -> None:
    """Write the picture of `command` and of its output, which is standard input, with the colours of the terminal."""
    # A terminal ends lines with a carriage return as well, from which rich would begin the line anew.
    printed = sys.stdin.read().replace("\r\n", "\n")
    text = Text.from_ansi(f"$ {command}\n{printed}")
    width = int(os.environ.get("COLUMNS", max(len(line) for line in text.plain.splitlines())))
    console = Console(record=True, width=width, file=io.StringIO(), highlight=False)
    console.print(text)
    console.save_svg(file, title=command, code_format=FORMAT)


if __name__ == "__main__":
    main(*sys.argv[1:])
