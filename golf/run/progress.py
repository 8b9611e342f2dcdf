"""Where a run is."""

from __future__ import annotations

from typing import NamedTuple


class Progress(NamedTuple):
    """Where a run is, the same on every rank."""

    step: int  # finished ones
    fraction: float  # of the time or, without a clock, of the steps
    lr_multiplier: float  # of the step that comes
