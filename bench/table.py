"""Rows of measurements, as a table for people and as JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.machine import Machine

COLUMNS = ("part", "what", "ms", "fastest … slowest", "tokens/s", "GFLOP/s", "")


@dataclass(frozen=True)
class Row:
    """Seconds of all rounds of one measurement."""

    part: str
    what: str
    seconds: list[float]
    tokens: float = 0.0  # tokens of one round, 0 where there are none
    flops: float = 0.0  # floating-point operations of one round, 0 where they are not counted
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def cells(self) -> list[str]:
        """Return the cells for COLUMNS; a cell that does not apply is empty."""
        return [
            self.part,
            self.what,
            _number(1000 * self.median),
            f"{_number(1000 * min(self.seconds))} … {_number(1000 * max(self.seconds))}",
            f"{self.tokens / self.median:,.0f}" if self.tokens else "",
            _number(self.flops / self.median / 1e9) if self.flops else "",
            self.note,
        ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def heading(machine: Machine) -> list[str]:
    """Return two lines about the machine."""
    versions = ", ".join(f"{name} {machine.packages[name]}" for name in ("torch", "numpy"))
    return [
        f"{machine.kind}, {machine.threads} threads, {versions}, commit {str(machine.git.get('commit', '?'))[:8]}",
        f"load before: {machine.load:.1f}" + (", so read the ratios only" if machine.load > 0.5 else ""),
    ]


def markdown(machine: Machine, rows: Sequence[Row]) -> str:
    """Return heading and table in Markdown, for a terminal and for docs/benchmarks.md."""
    table = [list(COLUMNS), ["---"] * len(COLUMNS), *(row.cells() for row in rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(COLUMNS))]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in table]
    return "\n".join([*heading(machine), "", *(f"| {line} |" for line in lines)])


def as_json(machine: Machine, rows: Sequence[Row], command: Sequence[str]) -> str:
    """Return the table and every single measurement as JSON."""
    found: dict[str, Any] = {
        "command": list(command),
        "machine": dataclasses.asdict(machine),
        "rows": [dataclasses.asdict(row) | {"median_seconds": row.median} for row in rows],
    }
    return json.dumps(found, indent=1) + "\n"
