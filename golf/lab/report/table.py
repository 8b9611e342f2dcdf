"""A table of values and its three forms: terminal, Markdown, CSV."""

from __future__ import annotations

import csv
import io
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from golf.lab.report.rows import is_number
from golf.words import answer, text_width

EMPTY = "–"
FOR_PROGRAMS = "json"  # key of the values of a row that JSON has in place of those for people, or beside them
PLAIN_WIDTH = 300  # width of a table in a file or a pipe, in characters
TEXT_WIDTH, LEAST_TEXT_WIDTH = 19, 9  # characters a line: sentences are easy to read; sentences can still be read
SQUEEZED = 4  # columns of this rank or below are dropped only where sentences broken anywhere do not fit either


@dataclass(frozen=True)
class Column:
    """A column: where its values are found and how they are shown."""

    key: str  # name of the value for programs, unit included
    title: str  # name of the value for people
    shown: Callable[[Any], str] = str
    is_text: bool = False
    in_csv: bool = True
    in_text: bool = True  # also for Markdown and HTML
    spare: int = 0  # rank in which narrow terminals drop columns, highest first; 0 is never dropped
    style: Callable[[str], str] = lambda cell: ""  # style of a cell on a terminal with colours, such as red

    def cell(self, row: Mapping[str, Any]) -> str:
        """Return the cell for people; a dash for an unknown value, nothing for an empty text."""
        if (value := row.get(self.key)) == "":
            return ""
        if value is None or (isinstance(value, float) and not is_number(value)):
            return EMPTY
        return self.shown(value)


@dataclass(frozen=True)
class Table:
    """Rows of values, the columns that show them, and the sentences below."""

    columns: tuple[Column, ...]
    rows: Sequence[Mapping[str, Any]]
    title: str = ""
    notes: Sequence[str] = ()
    totals: int = 0  # number of rows at the end that stand below a rule

    @property
    def filled(self) -> list[Column]:
        """Return the columns for people that have a value in at least one row."""
        return [c for c in self.columns if c.in_text and any(c.cell(row) not in (EMPTY, "") for row in self.rows)]


def render(table: Table, form: str) -> str:
    """Return the table as text that ends with a line feed; `form` is text, markdown, csv or json."""
    return {"text": as_text, "markdown": as_markdown, "csv": as_csv, "json": as_json}[form](table).rstrip("\n") + "\n"


def as_text(table: Table) -> str:
    """Return a box as wide as the terminal or `COLUMNS`, or wide enough for sentences in a file or a pipe."""
    out = io.StringIO()
    width = text_width(PLAIN_WIDTH)
    # Colours are for eyes: a pipe and a file get none, nor does a terminal where NO_COLOR is set.
    on_terminal = sys.stdout.isatty() or None
    console = Console(file=out, highlight=False, markup=False, width=width, force_terminal=on_terminal)
    columns, left_out = _fitting(table, width)
    shown = RichTable(title=table.title or None, title_justify="left")
    for column in columns:
        # rich narrows columns that may wrap, widest first. Numbers must not, so their headers are broken by hand.
        least = _least_width(column, table.rows)
        if column.is_text:
            shown.add_column(column.title, overflow="fold", min_width=_squeezed(column, table.rows))
        else:
            header = textwrap.fill(column.title, least, break_long_words=False, break_on_hyphens=False)
            shown.add_column(header, justify="right", no_wrap=True, min_width=least)
    for number, row in enumerate(table.rows):
        if number == len(table.rows) - table.totals:
            shown.add_section()
        shown.add_row(*(Text(cell := column.cell(row), style=column.style(cell)) for column in columns))
    console.print(shown)
    for note in table.notes:
        console.print(note, soft_wrap=True)
    if left_out:
        console.print(f"Left out for lack of width: {', '.join(c.title for c in left_out)}.", soft_wrap=True)
    return out.getvalue()


def _fitting(table: Table, width: int) -> tuple[list[Column], list[Column]]:
    """Return the columns that can be read side by side in `width` characters, and those that were dropped for it."""
    columns, left_out = table.filled, []
    while (next_out := max(columns, key=lambda c: c.spare)).spare:
        narrowest = _least_width if next_out.spare > SQUEEZED else _squeezed
        # Borders and padding take three characters a column, and the box ends with one more.
        if sum(narrowest(c, table.rows) + 3 for c in columns) + 1 <= width:
            break
        left_out.append(next_out)
        columns = [c for c in columns if c is not next_out]
    return columns, left_out


def _squeezed(column: Column, rows: Sequence[Mapping[str, Any]]) -> int:
    """Return the width in characters below which rich does not narrow the column."""
    least = _least_width(column, rows)
    return min(least, LEAST_TEXT_WIDTH) if column.is_text else least


def _least_width(column: Column, rows: Sequence[Mapping[str, Any]]) -> int:
    """Return the width in characters at which no number and no word of the header is broken; sentences may wrap."""
    header = max(len(word) for word in column.title.split())
    longest = max((len(column.cell(row)) for row in rows), default=0)
    return max(header, min(longest, TEXT_WIDTH) if column.is_text else longest)


def as_markdown(table: Table) -> str:
    """Return a table of pipes with its title in bold above it and its notes below it."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    columns = table.filled
    # Dashes with a colon align numbers to the right.
    rule = "|" + "|".join("---" if c.is_text else "---:" for c in columns) + "|"
    lines = [f"**{table.title}**", ""] if table.title else []
    lines += [line([c.title for c in columns]), rule, *(line([c.cell(row) for c in columns]) for row in table.rows)]
    return "\n".join([*lines, "", *(f"{note}  " for note in table.notes)])


def as_csv(table: Table) -> str:
    """Return every column under its key in full precision; unknown values are empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns = [c for c in table.columns if c.in_csv]
    writer.writerow([c.key for c in columns])
    for row in table.rows:
        writer.writerow(["" if row.get(c.key) is None else row[c.key] for c in columns])
    return out.getvalue()


def as_json(table: Table) -> str:
    """Return `values_of` a table as text."""
    return answer(values_of(table))


def values_of(table: Table) -> dict[str, Any]:
    """Return title, rows and notes for a program; a row has the columns of CSV, some of them put in another way."""
    keys = [c.key for c in table.columns if c.in_csv]
    rows = [{**{key: row.get(key) for key in keys}, **row.get(FOR_PROGRAMS, {})} for row in table.rows]
    return {"title": table.title, "rows": rows, "notes": table.notes}
