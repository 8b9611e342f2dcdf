"""Variants: all runs of one configuration, and means over those that count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from golf.lab.report.rows import OWN, STARVED, UNREADABLE, RunRow, is_score, read_settings
from golf.run.result import CRASHED, DIVERGED, OVER_BYTES, OVER_TIME, PRUNED, STOPPED, VOID

SCORES = {  # name on the command line → field of a row
    "final": "val_bpb",
    "pre_quant": "pre_quant_bpb",
    "post_quant": "post_quant_bpb",
    "sliding": "sliding_bpb",
    "ttt": "ttt_bpb",
}
WAYS = {"final": "how", "sliding": "sliding_how", "ttt": "ttt_how"}  # score → field of the way in which it was taken
# Ends that keep a run out of means and verdicts.
LOST_STATES = (OVER_TIME, OVER_BYTES, DIVERGED, VOID, CRASHED, PRUNED, STOPPED, UNREADABLE, STARVED)


@dataclass(frozen=True)
class Variant:
    """All runs of one configuration, one for each seed."""

    id: str
    label: str
    rows: tuple[RunRow, ...]
    values: Mapping[str, str] = field(default_factory=dict)  # swept key → value, as the override spells it
    rivals: tuple[Variant, ...] = ()  # those that it was compared with before, by these runs

    @cached_property
    def counted(self) -> list[RunRow]:
        """Return the runs that enter means and verdicts; seeds that scored the same to the last digit count once."""
        return [row for row in self.rows if row.counts and not any(row is copy for copy, _ in self.copies)]

    @cached_property
    def copies(self) -> list[tuple[RunRow, RunRow]]:
        """Return the runs with the scores of a run of a lower seed, before and after quantization, each with that run.

        A seed that does not act, or a folder that was copied, is no further run. Scores of imported runs are rounded,
        so that equal ones are no copies.
        """
        own = [row for row in self.rows if row.counts and row.source == OWN and row.pre_quant_bpb]
        first: dict[tuple[float | None, float | None], RunRow] = {}
        for row in sorted(own, key=lambda row: row.seed or 0):
            first.setdefault((row.pre_quant_bpb, row.val_bpb), row)
        originals = [(row, first[row.pre_quant_bpb, row.val_bpb]) for row in own]
        return [(row, original) for row, original in originals if row is not original]

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Return the settings of the configuration by full key; empty without one, as for imported runs."""
        return next((values for row in self.rows if row.path and (values := read_settings(row.path))), {})

    def scored(self, score: str) -> list[RunRow]:
        """Return the runs that count and have this score; none if their scores are of several texts."""
        # The mean of scores on two texts is a score on neither.
        if len(self.texts) > 1:
            return []
        return [row for row in self.counted if is_score(getattr(row, SCORES[score]))]

    def scores(self, score: str) -> list[float]:
        """Return this score of the runs that count, in bits per byte."""
        return [getattr(row, SCORES[score]) for row in self.scored(score)]

    def mean(self, score: str) -> float | None:
        """Return the mean over the seeds in bits per byte; None without a score."""
        values = self.scores(score)
        return float(np.mean(values)) if values else None

    def sd(self, score: str) -> float | None:
        """Return the sample standard deviation over the seeds in bits per byte; None for fewer than two."""
        values = self.scores(score)
        return float(np.std(values, ddof=1)) if len(values) > 1 else None

    def known(self, attribute: str) -> set[str]:
        """Return the values of this field of a row among the runs that count, without unknown ones."""
        return {getattr(row, attribute) for row in self.counted} - {None}

    @property
    def texts(self) -> set[str | None]:
        """Return the texts of the runs that count; None among them stands for runs that do not tell theirs."""
        return {row.data for row in self.counted}

    @property
    def machines(self) -> set[str]:
        """Return the kinds of machine of the runs that count."""
        return {row.kind for row in self.counted if row.kind}

    @property
    def lost(self) -> list[RunRow]:
        """Return the runs that ended without a score that counts."""
        return [row for row in self.rows if row.state in LOST_STATES]

    @property
    def lost_share(self) -> float:
        """Return the share of lost runs among the lost ones and those that count; 0 without any."""
        return len(self.lost) / max(1, len(self.lost) + len(self.counted))

    @property
    def is_open(self) -> bool:
        """Tell whether results are to come: of runs that have not ended, not started, or were interrupted."""
        return any(row.is_to_come for row in self.rows)

    @property
    def bytes_per_token(self) -> float | None:
        """Return the mean bytes per token of the scored text; None if no run tells it."""
        known = [row.bytes_per_token for row in self.counted if row.bytes_per_token]
        return float(np.mean(known)) if known else None


def compared_before(variants: Sequence[Variant]) -> list[Variant]:
    """Return the other variants that these were chosen from in earlier sweeps, by runs that count here again."""
    here = {v.id for v in variants}
    rivals = {rival.id: rival for v in variants for rival in v.rivals if rival.id not in here}
    return [*rivals.values()]
