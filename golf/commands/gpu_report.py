"""The report of `golf gpu-check`: a row for each answer, in a Markdown file and as JSON lines beside it.

Both are written whenever a row comes, so that nothing is lost with the machine, and a second start goes on from them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from golf.errors import GolfError
from golf.files import append_lines, read_lines, write_atomic

MACHINE = "machine"  # key of the first line, which says where the rows are from


@dataclass(frozen=True)
class Row:
    """An answer of a part."""

    part: str
    what: str
    passed: bool
    detail: str

    @property
    def markdown(self) -> str:
        """Return its row of the table; each further line of the detail is a row of its own."""
        lines = self.detail.replace("|", "/").splitlines() or [""]
        starts = [(self.what, "yes" if self.passed else "NO"), *[("", "")] * (len(lines) - 1)]
        return "\n".join(f"| {what} | {passed} | {line} |" for (what, passed), line in zip(starts, lines, strict=True))


class Report:
    """The rows of a machine by part; of a row that was tried again the last answer counts.

    Raises `GolfError` if `file` holds those of another machine, or something else.
    """

    def __init__(self, file: Path | None, machine: str, headings: Mapping[str, str]):
        self.file, self.machine, self.headings = file, machine, headings
        self.lines = file.with_suffix(".jsonl") if file else None
        self.rows: dict[tuple[str, str], Row] = {}
        self.left_out: dict[str, list[str]] = {}  # part → rows for which there was no time
        if not file or self.lines is None:
            return
        kept = list(read_lines(self.lines))
        if kept and kept[0].get(MACHINE) != machine:
            raise GolfError(
                f"--report {file} is of another check ({kept[0].get(MACHINE)}), and this one is {machine}: name "
                f"another file, or remove it and {self.lines.name}."
            )
        if not kept and file.exists():
            raise GolfError(f"--report {file} is there already and holds no check of a GPU: name another file.")
        for line in kept[1:]:
            row = Row(**line)
            self.rows[row.part, row.what] = row
        # Anew, because the last line may have been cut off, and the next one would follow it in the same line.
        lines = [{MACHINE: machine}, *map(asdict, self.rows.values())]
        write_atomic(self.lines, "".join(json.dumps(line) + "\n" for line in lines))
        self._write()

    def add(self, row: Row) -> None:
        """Keep and print a row."""
        self.rows[row.part, row.what] = row
        print(row.markdown, flush=True)
        if self.lines:
            append_lines(self.lines, [asdict(row)])
            self._write()

    def leave_out(self, part: str, rows: list[str]) -> None:
        """Say which rows of `part` were not reached."""
        self.left_out[part] = rows
        if rows:
            print(f"\n{self._left(part)}", flush=True)
        self._write()

    def failed(self, part: str) -> set[str]:
        """Return which rows of `part` are not in order."""
        return {what for (own, what), row in self.rows.items() if own == part and not row.passed}

    def passed(self, part: str) -> set[str]:
        """Return which rows of `part` are in order."""
        return {what for (own, what), row in self.rows.items() if own == part and row.passed}

    def table(self, part: str, *, kept: bool = False) -> str:
        """Return the table of `part`, of rows in order alone if those are `kept` by a second start."""
        rows = [row.markdown for (own, _), row in self.rows.items() if own == part and (row.passed or not kept)]
        return "\n".join(["| | | |", "|---|---|---|", *rows])

    @property
    def markdown(self) -> str:
        """Return the report: a table for each part that has rows."""
        text = f"## {self.machine}\n"
        for part, heading in self.headings.items():
            if any(own == part for own, _ in self.rows):
                text += f"\n**{part}**: {heading}\n\n{self.table(part)}\n"
            if self.left_out.get(part):
                text += f"\n{self._left(part)}\n"
        return text

    def _left(self, part: str) -> str:
        return f"Not reached, the same command goes on there: {', '.join(self.left_out[part])}."

    def _write(self) -> None:
        if self.file:
            write_atomic(self.file, self.markdown)
