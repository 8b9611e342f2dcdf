"""Training curves for the board: metrics.jsonl is followed as it grows, and each byte is read once."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

from golf.files import open_plain, parsed
from golf.lab.report.rows import is_number

# event → (values on its x axes and y axes), the same names in every answer
TRAIN, VALIDATION = "train", "validation"
READINGS = "readings"  # numbers that techniques log of themselves, by technique/number
MOST_READINGS = 100  # of one line
MOST_ADDED_BYTES = 1 << 24  # bytes of a file that one look reads; the next one goes on behind them
FIELDS = {
    TRAIN: ("step", "tokens", "train_seconds", "train_loss", "lr_multiplier", "tokens_per_second", READINGS),
    VALIDATION: ("step", "tokens", "train_seconds", "val_loss", "val_bpb"),
}


class MetricsTail:
    """Reader of one run's metrics.jsonl that goes on where it stopped."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "metrics.jsonl"
        self.generation = 0  # grows when points that were given out before are no longer true
        self._read_bytes = 0
        self._written_at: float | None = None  # seconds since 1970
        self.points: dict[str, list[tuple[Any, ...]]] = {}
        self.switches: list[dict[str, Any]] = []
        self._forget()

    def refresh(self) -> None:
        """Read the whole lines that were added since the last time."""
        try:
            file = open_plain(self.path)
        except OSError:
            return
        with file:
            status = os.fstat(file.fileno())
            if status.st_size < self._read_bytes:
                self.generation += 1
                self._read_bytes = 0
                self._forget()
            self._written_at = status.st_mtime
            file.seek(self._read_bytes)
            added = file.read(MOST_ADDED_BYTES)
        # The last line may be half written: it is read next time. No line of golf's is as long as what is read at once.
        whole = added if len(added) == MOST_ADDED_BYTES else added[: added.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.splitlines():
            self._take(line)

    def progress(self) -> dict[str, Any]:
        """Return step, seconds and loss of the last line, the last validation, and how often the file grows.

        The loss is in nats per token, the score in bits per byte. `line_seconds` is the longest time between two of
        the last lines, and `written_at` says in seconds since 1970 when the file last grew.
        """
        last = dict(zip(FIELDS[TRAIN], self.points[TRAIN][-1], strict=True)) if self.points[TRAIN] else {}
        validations = self.points[VALIDATION]
        times = [point[2] for point in self.points[TRAIN][-10:] if point[2] is not None]
        return {
            "steps": last.get("step"),
            "train_seconds": last.get("train_seconds"),
            "train_loss": last.get("train_loss"),
            "validation_bpb": validations[-1][4] if validations else None,
            "line_seconds": max((b - a for a, b in itertools.pairwise(times)), default=None),
            "written_at": self._written_at,
        }

    def since(self, generation: int, have: dict[str, int]) -> dict[str, Any]:
        """Return the points by event from number `have` on, or all if the `generation` is not this one."""
        self.refresh()
        known = have if generation == self.generation else {}
        first = {event: min(known.get(event, 0), len(points)) for event, points in self.points.items()}
        added = {event: points[first[event] :] for event, points in self.points.items()}
        return {"generation": self.generation, "first": first, "points": added, "switches": self.switches}

    def _take(self, line: bytes) -> None:
        try:
            event = parsed(line)
            kind, step = str(event["event"]), event.get("step")
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        if kind in FIELDS:
            values = map(event.get, FIELDS[kind])
            point = tuple(_numbers(v) if isinstance(v, dict) else _number(v) for v in values)
            if point[0] is not None:
                self.points[kind].append(point)
        elif kind == "switched_on" and isinstance(event.get("name"), str) and isinstance(step, int):
            self.switches.append({"name": event["name"], "step": step})
        elif kind == "resumed" and isinstance(step, int):
            self._rewind(step)

    def _rewind(self, step: int) -> None:
        """Forget what came after `step`: the run was resumed there and takes these steps again."""
        for event, points in self.points.items():
            self.points[event] = [point for point in points if point[0] <= step]
        self.switches = [switch for switch in self.switches if switch["step"] <= step]
        self.generation += 1

    def _forget(self) -> None:
        self.points = {event: [] for event in FIELDS}
        self.switches = []


def _number(value: Any) -> int | float | None:
    return value if isinstance(value, int | float) and is_number(value) else None


def _numbers(values: dict[str, Any]) -> dict[str, int | float]:
    """Return the readings that are numbers; at most `MOST_READINGS`, as a file may hold anything."""
    kept = itertools.islice(values.items(), MOST_READINGS)
    return {str(key): number for key, value in kept if (number := _number(value)) is not None}
