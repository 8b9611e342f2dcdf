"""Progress of a run."""

from __future__ import annotations

from typing import NamedTuple

from golf.settings.config import Config, training_seconds


class Progress(NamedTuple):
    """Progress of a run, the same on every rank."""

    step: int  # finished steps
    fraction: float  # used share of the time budget or, without one, of the steps, 0 to 1
    lr_multiplier: float  # factor on every learning rate in the coming step


def how_far(cfg: Config, step: int, seconds: float) -> tuple[float, float]:
    """Return the finished share of the training, 0 to 1, and the seconds left, after `step` steps in `seconds`.

    Steps and clock both limit a run, and the nearer limit ends it.
    """
    budget, iterations = training_seconds(cfg), max(cfg.schedule.iterations, 1)
    by_steps = max(iterations - step, 0) * seconds / max(step, 1)
    left = min(by_steps, max(budget - seconds, 0.0)) if budget else by_steps
    return min(max(step / iterations, seconds / budget if budget else 0.0), 1.0), left
