"""A variant in a table: all its runs, and their means over what counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from golf.report.rows import RunRow, is_number

SCORES = {  # name on the command line → field of a row
    "final": "val_bpb",
    "pre_quant": "pre_quant_bpb",
    "post_quant": "post_quant_bpb",
    "sliding": "sliding_bpb",
    "ttt": "ttt_bpb",
}


@dataclass(frozen=True)
class Variant:
    """All runs of one configuration, one a seed."""

    id: str
    label: str
    rows: tuple[RunRow, ...]
    values: Mapping[str, str] = field(default_factory=dict)  # of what was swept, as written

    @property
    def counted(self) -> list[RunRow]:
        return [row for row in self.rows if row.counts]

    def scored(self, score: str) -> list[RunRow]:
        """The runs that count and have this score."""
        return [row for row in self.counted if is_number(getattr(row, SCORES[score]))]

    def scores(self, score: str) -> list[float]:
        return [getattr(row, SCORES[score]) for row in self.scored(score)]

    def mean(self, score: str) -> float | None:
        values = self.scores(score)
        return float(np.mean(values)) if values else None

    def sd(self, score: str) -> float | None:
        """Sample standard deviation over the seeds."""
        values = self.scores(score)
        return float(np.std(values, ddof=1)) if len(values) > 1 else None

    @property
    def is_open(self) -> bool:
        """Whether runs are still to come."""
        return any(row.is_open for row in self.rows)

    @property
    def bytes_per_token(self) -> float | None:
        known = [row.bytes_per_token for row in self.counted if row.bytes_per_token]
        return float(np.mean(known)) if known else None
