"""Watching the compiler: a graph that is compiled while the clock runs costs training time and has a cause."""

from __future__ import annotations

import sys
from typing import Any


class RecompileWatch:
    """Counts graphs compiled between `start` and `stop`, over any number of such segments."""

    def __init__(self) -> None:
        self.causes: list[str] = []
        self._graphs_before = 0

    def start(self) -> None:
        self._graphs_before = _graphs()

    def stop(self) -> None:
        if new := _graphs() - self._graphs_before:
            self.causes += _latest_causes(new)
        self._graphs_before = _graphs()


def _dynamo() -> Any:
    """The compiler's bookkeeping, if it was ever used in this process."""
    return sys.modules.get("torch._dynamo.utils")


def _graphs() -> int:
    dynamo = _dynamo()
    return 0 if dynamo is None else int(dynamo.counters["stats"]["unique_graphs"])


def _latest_causes(count: int) -> list[str]:
    records = _dynamo().get_compilation_metrics()[-count:]
    return [_sentence(r) for r in records] or ["the compiler gave no cause"]


def _sentence(record: Any) -> str:
    cause = (record.recompile_reason or "compiled for the first time").splitlines()[0]
    return f"{record.co_name}: {' '.join(cause.split())}"
