"""Draw what a command printed as a terminal window: `python scripts/dev/terminal_picture.py FILE.svg COMMAND < OUTPUT`.

The picture holds its own colours and background, so that it can be read on a light and on a dark page. Lines are folded
at the width of the table.
"""

import re
import sys
import textwrap
from html import escape
from pathlib import Path

from golf.files import write_atomic

CHARACTER, LINE, MARGIN, BAR = 8.43, 19, 16, 34  # pixels of a monospaced font of 14 pixels
COLOURS = {"better": "#7ee2a0", "worse": "#ff9a8a", "reference": "#8cc4ff", "best": "#7ee2a0"}
LEAST_WIDTH = 40  # characters
TABLE = tuple("┏┃┡│└")  # first characters of a table's lines
STYLE = re.compile(r"\x1b\[[0-9;]*m")  # the terminal's own colours


def picture(text: str, command: str) -> str:
    """Return an SVG picture of `command` and the `text` it printed, in a window that is as wide as its table."""
    title = escape(command)
    lines = [line.rstrip() for line in STYLE.sub("", f"$ {command}\n{text}").rstrip("\n").splitlines()]
    columns = max(LEAST_WIDTH, *(len(line) for line in lines if line[:1] in TABLE))
    lines = [part for line in lines for part in textwrap.wrap(line, columns, drop_whitespace=False) or [""]]
    width, height = round(columns * CHARACTER + 2 * MARGIN), BAR + len(lines) * LINE + MARGIN
    dots = zip((20, 40, 60), ("#ff5f57", "#febc2e", "#28c840"), strict=True)
    shapes = [f'<circle cx="{x}" cy="{BAR // 2}" r="6" fill="{colour}"/>' for x, colour in dots]
    shapes.append(f'<text x="{width // 2}" y="{BAR // 2 + 5}" text-anchor="middle" class="dim">{title}</text>')
    shapes += [_line(line, BAR + (index + 1) * LINE - 5) for index, line in enumerate(lines)]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"',
        f'     role="img" aria-label="{title}">',
        "<style>text { font: 14px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #e6edf3;",
        "white-space: pre; } .dim { fill: #8b949e; }</style>",
        f'<rect width="{width}" height="{height}" rx="10" fill="#161b22"/>',
        *shapes,
        "</svg>\n",
    ])  # fmt: skip


def _line(line: str, y: int) -> str:
    # textLength keeps columns aligned whatever monospaced font the reader's machine has.
    length = round(len(line) * CHARACTER, 1)
    return f'<text x="{MARGIN}" y="{y}" textLength="{length}" xml:space="preserve">{_coloured(line)}</text>'


def _coloured(line: str) -> str:
    shown = escape(line)
    for word, colour in COLOURS.items():
        shown = shown.replace(f" {word} ", f' <tspan fill="{colour}">{word}</tspan> ')
    return shown


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    write_atomic(Path(sys.argv[1]), picture(sys.stdin.read(), sys.argv[2]))
