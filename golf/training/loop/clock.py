"""The clock of the training, and the one of a run folder, which also knows what the seconds were spent on."""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any

from golf.run.core_time import CoreMeter, CoreTime
from golf.training.ranks import Ranks


class TrainClock:
    """Clock of the seconds of training, read on the host. Starting and pausing wait for the device to finish."""

    def __init__(self, ranks: Ranks, seconds: float = 0.0):
        self.ranks = ranks
        self._finished_seconds = seconds
        self._started_at: float | None = None

    def start(self) -> None:
        self.ranks.synchronize()
        self._started_at = time.perf_counter()

    def pause(self) -> None:
        self.ranks.synchronize()
        self._finished_seconds, self._started_at = self.seconds, None

    @property
    def seconds(self) -> float:
        return self._finished_seconds + (0.0 if self._started_at is None else time.perf_counter() - self._started_at)

    def agreed_seconds(self, *, exact: bool = False) -> float:
        """Return rank 0's reading on every rank, so that all use the same learning rate and stop at the same step.

        `exact` waits for the device; without it, work that is still queued there is not in the reading.
        """
        if exact:
            self.ranks.synchronize()
        return self.ranks.first(self.seconds)


class RunClock(TrainClock):
    """Training clock that notes what is compiled and how much of its cores the run has while it runs."""

    def __init__(self, ranks: Ranks, seconds: float = 0.0, spent: CoreTime | None = None):
        """Go on from `seconds` of training, in which all ranks have `spent` the time of their cores."""
        super().__init__(ranks, seconds)
        self.recompiles: list[str] = []  # causes of the graphs that were compiled while the clock ran
        # What was spent before a resume is that of all ranks, and the first one counts on from there.
        self._meter = CoreMeter(spent if ranks.is_first else None)
        self._last: Any = None
        self._graphs = 0

    def start(self) -> None:
        # What is read beforehand takes no training time.
        self._meter.start()
        self._last, self._graphs = next(iter(_records()), None), _graphs()
        super().start()

    def pause(self) -> None:
        super().pause()
        self._meter.stop()
        if _graphs() == self._graphs:
            return
        # Torch drops old records, so the last one seen marks where new ones end, not their number.
        new = itertools.takewhile(lambda record: record is not self._last, _records())
        causes = [_sentence(record) for record in new if record.recompile_reason]
        # The latest record comes first, and a first compilation has no reason to recompile.
        self.recompiles += reversed(causes) if causes else ["a function for the first time"]
        self._graphs = _graphs()

    def core_time(self) -> CoreTime:
        """Return the time of all ranks on their cores and in wait of them while the clock ran. All have to call it."""
        mine = self._meter.stop()
        return CoreTime(*self.ranks.sum(mine.cpu, mine.waited))


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
