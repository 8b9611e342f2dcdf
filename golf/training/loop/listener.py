"""The framework's part in the timed loop: warnings, checkpoints, recompilations, CPU seconds.

The exported script has none.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from golf.run.core_time import CoreMeter, CoreTime
from golf.settings.config import Config
from golf.training.loop.checkpoint import Checkpoints, Start
from golf.training.loop.schedule import decays_from_the_start
from golf.training.ranks import ALONE, Ranks


class LoopListener:
    """Saves checkpoints, notes what is compiled and used while the clock runs, and passes on warnings of the pace."""

    def __init__(self, warn: Callable[[str], None], checkpoints: Checkpoints | None = None):
        self.warn, self.checkpoints = warn, checkpoints
        self.recompiles: list[str] = []  # causes of the graphs that were compiled while the clock ran
        self.ranks: Ranks = checkpoints.ranks if checkpoints else ALONE
        start = self.start
        # What was spent before a resume is that of all ranks, and the first one counts on from there.
        spent = CoreTime(start.cpu_seconds, start.waited_seconds) if self.ranks.is_first else CoreTime()
        self._meter = CoreMeter(spent)
        self._last: Any = None
        self._graphs = 0

    @property
    def start(self) -> Start:
        """Return the starting point of the loop: step 0, or the state of the loaded checkpoint."""
        return self.checkpoints.start if self.checkpoints else Start()

    def clock_runs(self) -> None:
        """Begin a segment in which a compilation counts."""
        self._meter.start()
        self._last, self._graphs = next(iter(_records()), None), _graphs()

    def clock_stands(self) -> None:
        """End the segment and collect the causes."""
        self._meter.stop()
        if _graphs() == self._graphs:
            return
        # Torch drops old records, so the last one seen marks where new ones end, not their number.
        new = itertools.takewhile(lambda record: record is not self._last, _records())
        causes = [_sentence(record) for record in new if record.recompile_reason]
        # The latest record comes first, and a first compilation has no reason to recompile.
        self.recompiles += reversed(causes) if causes else ["a function for the first time"]

    def warn_of_pace(self, cfg: Config, step: int, train_seconds: float) -> None:
        """Pass on a warning if the learning rate decays from the first step on at this pace."""
        if text := decays_from_the_start(cfg, step, train_seconds):
            self.warn(text)

    def is_checkpoint_due(self, train_seconds: float) -> bool:
        return self.checkpoints is not None and self.checkpoints.is_due(train_seconds)

    def save(self, start: Start) -> None:
        """Write a checkpoint from which training can go on at `start`."""
        if self.checkpoints:
            spent = self.core_time()
            self.checkpoints.save(replace(start, cpu_seconds=spent.cpu, waited_seconds=spent.waited))
            self._meter.start()

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
