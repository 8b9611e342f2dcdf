"""Nominal levels of a test that is repeated while data come in: linear error spending over the looks.

A test at level 0.05 after each new seed errs far more often than 5 % in all. Here the error that may have happened by
look k of n is `level * k / n` (Lan and DeMets 1983), and each look's nominal level follows from it by integration over
normal increments (Armitage, McPherson and Rowe 1969). A t test uses the same nominal levels.
"""

from __future__ import annotations

import bisect
import functools
import math

import numpy as np
from numpy.typing import NDArray

# scipy.special and not scipy.stats, which takes three times as long to import.
from scipy.special import ndtr

TAIL_SD = 8.0  # sums further than this many standard deviations from 0 are left out
# Sixty halvings leave a bracket that is narrower than the rounding of a double.
BISECTIONS = 60
LEVELS = tuple(float(level) for level in np.geomspace(1e-6, 0.5, 256))

Floats = NDArray[np.float64]


@functools.lru_cache(maxsize=4096)
def nominal_levels(level: float, looks: int, first: int = 1) -> tuple[float, ...]:
    """Return the one-sided nominal level of looks 1 to `looks`, 0 before look `first`; together they err by `level`."""
    # Sums spread by the root of the looks and are smooth on the scale of one; this many points leave errors of 1e-6.
    nodes, weights = np.polynomial.legendre.leggauss(16 + round(12 * math.sqrt(looks)))
    levels = [0.0] * looks
    # Sums that have not crossed before, as points with their probability times the rule's weight.
    sums, mass = np.zeros(1), np.ones(1)
    spent, last = 0.0, 0
    for look in range(first, looks + 1):
        step = math.sqrt(look - last)
        bound = _bound_of(level * look / looks - spent, sums, mass, step)
        levels[look - 1] = float(ndtr(-bound / math.sqrt(look)))
        low = -TAIL_SD * math.sqrt(look)
        # The nodes of the rule lie from -1 to 1 and are moved to the sums that have not crossed.
        points = low + (bound - low) * (nodes + 1) / 2
        density = np.exp(-(((points[:, None] - sums[None, :]) / step) ** 2) / 2) / (step * math.sqrt(2 * math.pi))
        sums, mass = points, (density @ mass) * weights * (bound - low) / 2
        spent, last = level * look / looks, look
    return tuple(levels)


def repeated_p(p_values: tuple[float, ...], looks: int, first: int = 1) -> float:
    """Return the smallest level at which one of the looks' `p_values` would have been below its nominal level.

    It is valid whenever the looking stops (Jennison and Turnbull 2000, section 9.5). Values above 0.5 are given as 1.
    """

    def is_crossed(level: float) -> bool:
        return any(p < nominal for p, nominal in zip(p_values, nominal_levels(level, looks, first), strict=False))

    # A grid, because computed levels are kept. The next larger level is returned, so no p comes out too small.
    first_crossed = bisect.bisect_left(LEVELS, True, key=is_crossed)
    return LEVELS[first_crossed] if first_crossed < len(LEVELS) else 1.0


def _bound_of(share: float, sums: Floats, mass: Floats, step: float) -> float:
    """Return the bound that the next sum exceeds with probability `share`, without having crossed before."""
    low, high = -TAIL_SD * step + float(sums.min()), TAIL_SD * step + float(sums.max())
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if float(mass @ ndtr((sums - middle) / step)) > share else (low, middle)
    # The upper end, so that no look errs by more than its share.
    return high
