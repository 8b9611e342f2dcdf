"""Alternating rounds: variants of one measurement in turn, so that a machine whose speed drifts slows all alike."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

import torch

from bench.machine import seconds_of

Variants = Mapping[str, Callable[[], object]]


def alternate(variants: Variants, rounds: int, device: torch.device, warm_up: int = 2) -> dict[str, list[float]]:
    """Return the seconds of every variant in every round, after `warm_up` rounds that are not counted.

    A round calls each variant once; every other round goes through them backwards.
    """
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(rounds + warm_up):
        # The order is turned every other time, so that no variant always follows the same one.
        order = list(variants.items())
        for name, variant in order if number % 2 else reversed(order):
            taken = seconds_of(variant, device)
            if number >= warm_up:
                seconds[name].append(taken)
    return seconds


def paired_ratio(slow: list[float], fast: list[float]) -> float:
    """Return the median over the rounds of the ratio `slow` / `fast` within a round."""
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))
