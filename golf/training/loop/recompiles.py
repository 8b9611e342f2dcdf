"""Causes of graphs that the compiler builds while the clock runs, which costs training time."""

from __future__ import annotations

import itertools
import sys
from typing import Any


class RecompileWatch:
    """Causes of compilations between `start` and `stop`, over any number of such segments."""

    def __init__(self) -> None:
        self.causes: list[str] = []
        self._last: Any = None
        self._graphs = 0

    def start(self) -> None:
        """Begin a segment in which a compilation counts."""
        self._last, self._graphs = next(iter(_records()), None), _graphs()

    def stop(self) -> None:
        """End the segment and collect the causes."""
        if _graphs() == self._graphs:
            return
        # Torch drops old records, so the last one seen marks where new ones end, not their number.
        new = itertools.takewhile(lambda record: record is not self._last, _records())
        causes = [_sentence(record) for record in new if record.recompile_reason]
        # The latest record comes first, and a first compilation has no reason to recompile.
        self.causes += reversed(causes) if causes else ["a function for the first time"]


def _dynamo() -> Any:
    """Return the compiler's module of counters, or None if this process has compiled nothing."""
    # Importing it takes seconds, so it is only looked up.
    return sys.modules.get("torch._dynamo.utils")


def _graphs() -> int:
    dynamo = _dynamo()
    return 0 if dynamo is None else int(dynamo.counters["stats"]["unique_graphs"])


def _records() -> list[Any]:
    """Return torch's records of compilations, forward and backward apart, the latest first; torch limits them."""
    dynamo = _dynamo()
    return [] if dynamo is None else dynamo.get_compilation_metrics()[::-1]


def _sentence(record: Any) -> str:
    return f"{record.co_name}: {' '.join(record.recompile_reason.splitlines()[0].split())}"
