"""Progress of a run."""

from __future__ import annotations

from typing import NamedTuple


class Progress(NamedTuple):
    """Progress of a run, the same on every rank."""

    step: int  # finished steps
    fraction: float  # used share of the time budget or, without one, of the steps, 0 to 1
    lr_multiplier: float  # factor on every learning rate in the coming step
