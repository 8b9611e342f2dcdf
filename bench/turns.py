"""Ways to do one thing against each other: they take turns, so that a machine whose speed drifts slows all of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

import torch

from bench.machine import seconds_of

Ways = Mapping[str, Callable[[], object]]


def take_turns(ways: Ways, rounds: int, device: torch.device, warm_up: int = 2) -> dict[str, list[float]]:
    """Seconds of every way in every round: one call of each a round, there and back, after rounds not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + warm_up):
        order = list(ways.items())
        for name, way in order if number % 2 else reversed(order):
            taken = seconds_of(way, device)
            if number >= warm_up:
                seconds[name].append(taken)
    return seconds


def paired_ratio(slow: list[float], fast: list[float]) -> float:
    """Median over the rounds of the seconds of one way over those of the other in the same round."""
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))
