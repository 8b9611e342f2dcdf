"""Watching the compiler: a graph that is compiled while the clock runs costs training time and has a cause."""

from __future__ import annotations

import itertools
import sys
from typing import Any


class RecompileWatch:
    """Collects the causes of what is compiled between `start` and `stop`, over any number of such segments."""

    def __init__(self) -> None:
        self.causes: list[str] = []
        self._last: Any = None
        self._graphs = 0

    def start(self) -> None:
        self._last, self._graphs = next(iter(_records()), None), _graphs()

    def stop(self) -> None:
        if _graphs() == self._graphs:
            return
        new = itertools.takewhile(lambda record: record is not self._last, _records())
        causes = [_sentence(record) for record in new if record.recompile_reason]
        self.causes += reversed(causes) if causes else ["a function for the first time"]


def _dynamo() -> Any:
    """The compiler's bookkeeping, if it was ever used in this process."""
    return sys.modules.get("torch._dynamo.utils")


def _graphs() -> int:
    dynamo = _dynamo()
    return 0 if dynamo is None else int(dynamo.counters["stats"]["unique_graphs"])


def _records() -> list[Any]:
    """What was compiled so far (forward and backward parts apart), the latest first, up to a limit of torch's own."""
    dynamo = _dynamo()
    return [] if dynamo is None else dynamo.get_compilation_metrics()[::-1]


def _sentence(record: Any) -> str:
    return f"{record.co_name}: {' '.join(record.recompile_reason.splitlines()[0].split())}"
