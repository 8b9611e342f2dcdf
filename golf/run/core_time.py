"""CPU seconds of a part of a run, and the share that it had of the cores that its threads asked for.

Wall seconds say little on a machine that other processes use: CPU seconds stay nearly the same there, and a share below
one says how much the others took.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from golf.system import core_waits

LEAST_SHARE = 0.8  # below it another process took more than a fifth: the seconds are not those of this machine

# Share of the budget that a training has used which the clock ended: the rest is reserved, as for calibration.
CLOCK_SHARE = 0.5


@dataclass(frozen=True)
class CoreTime:
    """Seconds of all threads of a process, or of several processes."""

    cpu: float = 0.0  # on a core
    waited: float = 0.0  # ready to run and without a core; 0 where the system does not tell

    @property
    def share(self) -> float | None:
        """Share of the cores that the threads asked for; None before they ran."""
        return self.cpu / (self.cpu + self.waited) if self.cpu > 0 else None


class CoreMeter:
    """Adds up the time of this process between `start` and `stop`, on top of what was spent `before`."""

    def __init__(self, before: CoreTime | None = None):
        self._before = before or CoreTime()
        self._begun: tuple[float, dict[str, float]] | None = None

    def start(self) -> None:
        """Begin to count."""
        self._begun = time.process_time(), core_waits()

    def stop(self) -> CoreTime:
        """Stop counting and return all that was counted so far. It does nothing while the meter stands."""
        if self._begun:
            cpu, waits = self._begun
            # A thread that has ended takes its waiting along.
            waited = sum(max(0.0, seconds - waits.get(name, 0.0)) for name, seconds in core_waits().items())
            total = CoreTime(self._before.cpu + time.process_time() - cpu, self._before.waited + waited)
            self._before, self._begun = total, None
        return self._before


def lacked_cores(share: float | None, doing: str) -> str:
    """Return a sentence on a run whose threads got too few of the cores that they asked for; empty if they did not."""
    if share is None or share >= LEAST_SHARE:
        return ""
    return f"the machine was busy: this run had {share:.2f} of its cores while {doing}"


def starved(share: float | None, train_seconds: float | None, budget_seconds: float | None) -> str:
    """Return `lacked_cores` of a training that a clock cut short; empty for one that ended by its number of steps.

    Steps cost what they cost: only at equal seconds does a busy machine take some away.
    """
    by_clock = budget_seconds and (train_seconds or 0.0) >= CLOCK_SHARE * budget_seconds
    return lacked_cores(share, "training") if by_clock else ""
