"""The training clock: runs while the model trains, stands still while it is validated."""

from __future__ import annotations

import time

import torch

from golf.ranks import Ranks


class TrainClock:
    """Seconds of training so far, measured on the host with the device finished at both ends of a segment."""

    def __init__(self, device: torch.device, seconds: float = 0.0):
        self.device = device
        self._finished_seconds = seconds
        self._started_at: float | None = None

    def start(self) -> None:
        self._synchronize()
        self._started_at = time.perf_counter()

    def pause(self) -> None:
        self._synchronize()
        self._finished_seconds, self._started_at = self.seconds, None

    @property
    def seconds(self) -> float:
        running = 0.0 if self._started_at is None else time.perf_counter() - self._started_at
        return self._finished_seconds + running

    def agreed_seconds(self, ranks: Ranks, *, exact: bool = False) -> float:
        """Rank 0's reading on every rank, so that all use the same learning rate and stop at the same step.

        `exact` waits for the device; without it the reading leaves out what is queued there.
        """
        if exact:
            self._synchronize()
        return ranks.sum(self.seconds if ranks.is_first else 0.0)[0]

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
