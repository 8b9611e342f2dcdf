"""Losses of public records by step, from the logs that their folders hold: record_losses.csv, one log a line.

Nats per token. Copies of a log are left out, training losses of a log with other ranks, and the naive baseline, whose
text is an older export: 2026-03-17_lora_ttt trains the same model on today's.
"""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from golf.lab.report.board_curves import TRAIN, VALIDATION
from golf.tables import grouped

COLUMNS = {"val": VALIDATION, "train": TRAIN}


@dataclass(frozen=True)
class Curve:
    """Losses of one run in nats per token, by kind and step."""

    total_steps: float | None  # of the whole run, estimated for one that goes on; None before the first line
    bpb_per_nat: float | None  # of the validation text; None before the first validation
    losses: dict[str, dict[int, float]]

    @property
    def last_step(self) -> int:
        """Return the last step with a loss."""
        return max((step for losses in self.losses.values() for step in losses), default=0)

    def mean(self, kind: str, steps: Sequence[int]) -> float:
        """Return the mean loss at `steps`."""
        return fmean(self.losses[kind][step] for step in steps)


def shared_steps(curves: Sequence[Curve], kind: str, last: float = math.inf) -> list[int]:
    """Return the steps up to `last` at which all curves have a loss, from half of the last of these on.

    Earlier losses scatter more.
    """
    steps = set.intersection(*({step for step in curve.losses[kind] if step <= last} for curve in curves))
    return sorted(step for step in steps if 2 * step >= max(steps))


@functools.cache
def record_curves() -> dict[str, list[Curve]]:
    """Return the curves of the logs by record, as experiments are called in conf/experiment/records."""
    with Path(__file__).with_name("record_losses.csv").open(newline="", encoding="utf-8") as file:
        return grouped((row["record"], _curve(row)) for row in csv.DictReader(file))


def _curve(row: dict[str, str]) -> Curve:
    losses: dict[str, dict[int, float]] = {VALIDATION: {}, TRAIN: {}}
    for column, text in row.items():
        kind, _, step = column.partition("_")
        if kind in COLUMNS and text:
            losses[COLUMNS[kind]][int(step)] = float(text)
    return Curve(float(row["steps"]), float(row["bpb_per_nat"]), losses)
