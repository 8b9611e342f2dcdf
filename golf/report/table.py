"""A table of values with a way to show each, and its forms: terminal, Markdown, CSV, LaTeX."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.console import Console
from rich.table import Table as RichTable

from golf.report.rows import is_number

EMPTY = "–"
PLAIN_WIDTH = 300  # of a table in a file or a pipe
TEXT_WIDTH, LEAST_TEXT_WIDTH = 19, 9  # of sentences: where they are easy to read, and where they can be read
FORMATS = ("text", "markdown", "csv", "latex")
LATEX_ESCAPES = str.maketrans({
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "–": "--", "×": r"$\times$", "·": r"$\cdot$", "≈": r"$\approx$", "±": r"$\pm$", "−": "$-$",
    "<": r"\textless{}", ">": r"\textgreater{}",
})  # fmt: skip


@dataclass(frozen=True)
class Column:
    """`key` names the value, unit included, for programs; `title` for people."""

    key: str
    title: str
    shown: Callable[[Any], str] = str
    is_text: bool = False
    in_csv: bool = True
    in_text: bool = True  # and Markdown, LaTeX, HTML
    spare: int = 0  # the higher, the earlier a narrow terminal goes without it; 0 is always shown

    def cell(self, row: Mapping[str, Any]) -> str:
        value = row.get(self.key)
        if value is None or value == "" or (isinstance(value, float) and not is_number(value)):
            return EMPTY if value != "" else ""
        return self.shown(value)


@dataclass(frozen=True)
class Table:
    columns: tuple[Column, ...]
    rows: Sequence[Mapping[str, Any]]
    title: str = ""
    notes: Sequence[str] = ()

    @property
    def filled(self) -> list[Column]:
        """Columns that have something to show in at least one row."""
        return [c for c in self.columns if c.in_text and any(c.cell(row) not in (EMPTY, "") for row in self.rows)]


def render(table: Table, form: str) -> str:
    """The table as text that ends with a line feed; `form` is one of `FORMATS`."""
    forms = {"text": as_text, "markdown": as_markdown, "csv": as_csv, "latex": as_latex}
    return forms[form](table).rstrip("\n") + "\n"


def as_text(table: Table) -> str:
    """Boxes of the width of the terminal; room for whole sentences in a file or a pipe."""
    out = io.StringIO()
    width = Console().width if sys.stdout.isatty() else PLAIN_WIDTH
    console = Console(file=out, highlight=False, markup=False, width=width)
    columns, left_out = _fitting(table, width)
    shown = RichTable(title=table.title or None, title_justify="left")
    for column, room in zip(columns, _widths(columns, table.rows, width), strict=True):
        justify: Literal["left", "right"] = "left" if column.is_text else "right"
        shown.add_column(column.title, justify=justify, overflow="fold", width=room)
    for row in table.rows:
        shown.add_row(*(column.cell(row) for column in columns))
    console.print(shown)
    for note in table.notes:
        console.print(note, soft_wrap=True)
    if left_out:
        console.print(f"Left out for lack of width: {', '.join(c.title for c in left_out)}.", soft_wrap=True)
    return out.getvalue()


def _fitting(table: Table, width: int) -> tuple[list[Column], list[Column]]:
    """The columns that can be read side by side in `width`, and those that were given up for it."""
    columns, left_out = table.filled, []
    while sum(_least_width(c, table.rows) + 3 for c in columns) + 1 > width and any(c.spare for c in columns):
        left_out.append(max(columns, key=lambda c: c.spare))
        columns = [c for c in columns if c is not left_out[-1]]
    return columns, left_out


def _least_width(column: Column, rows: Sequence[Mapping[str, Any]]) -> int:
    """Numbers and the words of headers are not broken; sentences may be."""
    header = max(len(word) for word in column.title.split())
    longest = max((len(column.cell(row)) for row in rows), default=0)
    return max(header, min(longest, TEXT_WIDTH) if column.is_text else longest)


def _widths(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], width: int) -> list[int]:
    """The least of every column, and what is left over for those that need little more first."""
    least = [_least_width(column, rows) for column in columns]
    wanted = [max(len(c.title), *(len(c.cell(row)) for row in rows)) for c in columns]
    slack = width - sum(least) - 3 * len(columns) - 1
    sentences = [i for i, column in enumerate(columns) if column.is_text]
    while slack < 0 and sentences and max(least[i] for i in sentences) > LEAST_TEXT_WIDTH:
        least[max(sentences, key=lambda i: least[i])] -= 1
        slack += 1
    for index in sorted(range(len(columns)), key=lambda i: wanted[i] - least[i]):
        more = max(0, min(wanted[index] - least[index], slack))
        least[index] += more
        slack -= more
    return least


def as_markdown(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    columns = table.filled
    rule = "|" + "|".join("---" if c.is_text else "---:" for c in columns) + "|"
    lines = [f"**{table.title}**", ""] if table.title else []
    lines += [line([c.title for c in columns]), rule, *(line([c.cell(row) for c in columns]) for row in table.rows)]
    return "\n".join([*lines, "", *(f"{note}  " for note in table.notes)])


def as_csv(table: Table) -> str:
    """Every column, under its key, in full precision; what is unknown is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns = [c for c in table.columns if c.in_csv]
    writer.writerow([c.key for c in columns])
    for row in table.rows:
        writer.writerow(["" if row.get(c.key) is None else row[c.key] for c in columns])
    return out.getvalue()


def as_latex(table: Table) -> str:
    """For the package booktabs."""
    columns = table.filled
    lines = [rf"\begin{{tabular}}{{{''.join('l' if c.is_text else 'r' for c in columns)}}}", r"\toprule"]
    lines += [_latex_line([c.title for c in columns]), r"\midrule"]
    lines += [_latex_line([c.cell(row) for c in columns]) for row in table.rows]
    notes = [f"% {' '.join(note.split())}" for note in table.notes]
    return "\n".join([*notes, *lines, r"\bottomrule", r"\end{tabular}"])


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(" ".join(cell.split()).translate(LATEX_ESCAPES) for cell in cells) + r" \\"
