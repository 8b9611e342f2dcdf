"""Integer tables of the entropy coder, computed in decimal arithmetic, so that every machine gets the same.

Units: probabilities have 16 bits, logits are in 1/256 nat, and widths are levels of 1/32 octave of variance. Level 256
is a variance of one squared step of the codes.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np

from golf.artifact.codec.context_kernel import LEVELS, MAX_COUNT, MOST_LIKELY, ONE, UNIT_LEVEL, Tables


def _rounded(values: list[Decimal]) -> np.ndarray:
    return np.array([int(value.to_integral_value()) for value in values], dtype=np.int64)


def _logistic() -> np.ndarray:
    """Return the probability of each logit from -8 to 8 nats, clipped away from zero and one."""
    values = [ONE / (1 + (Decimal(2048 - i) / 256).exp()) for i in range(4096)]
    return np.clip(_rounded(values), ONE - MOST_LIKELY, MOST_LIKELY)


def _logit() -> np.ndarray:
    """Return the logit of each of 4,096 probabilities."""
    # Probabilities are taken in the middle of their interval, so that none is zero or one.
    odds = [Decimal(2 * i + 1) / Decimal(8191 - 2 * i) for i in range(4096)]
    return np.clip(_rounded([256 * x.ln() for x in odds]), -2047, 2047)


def _normal() -> np.ndarray:
    """Return the normal distribution function from -8 to 8 in steps of 1/256, in units of 2⁻¹⁸."""
    density = [(-((Decimal(i - 2048) / 256) ** 2) / 2).exp() for i in range(4097)]
    below, total, values = Decimal(0), sum(density), []
    for value in density:
        # Half of a point's own weight counts as below it, which makes the table symmetric.
        values.append((below + value / 2) / total * (1 << 18))
        below += value
    return _rounded(values)


# 32·log₂ of 1 to 2 in steps of 1/256.
OCTAVES = _rounded([32 * (1 + Decimal(i) / 256).ln() / Decimal(2).ln() for i in range(256)])
# 1/σ of each level, in units of 2⁻¹⁶.
INVERSE_WIDTH = _rounded([ONE * (Decimal(UNIT_LEVEL - i) / 64 * Decimal(2).ln()).exp() for i in range(LEVELS)])
# 1/(n + 1.5) of each count n, in units of 2⁻¹⁶.
RECIPROCAL = np.array([2 * ONE // (2 * n + 3) for n in range(MAX_COUNT + 1)], dtype=np.int64)
TABLES = Tables(_logistic(), _logit(), _normal(), OCTAVES, INVERSE_WIDTH, RECIPROCAL)
