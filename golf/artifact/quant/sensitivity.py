"""Steps by sensitivity: finer in matrices whose rounding costs more divergence for each weight, coarser in the others.

Divergence grows with a step's square, and bytes fall with its logarithm. So the least divergence for the bytes costs
equally much for each weight of every matrix.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

STEP = ".step"  # suffix of a matrix's name in the Hessians: the factor on its steps
# Of the least and the largest factor. At 0.4 the clips of the records end at 5 deviations.
FACTOR_LOGS = math.log(0.4), math.log(4)
LEAST_SHARE = 1e-6  # of the largest divergence, for matrices that rounding does not change


def shared_out(wanted: Tensor, falls: Tensor, sizes: Tensor, limits: tuple[float, float]) -> Tensor:
    """Return `wanted` less `falls`, all moved alike and kept within `limits`, so that the mean by `sizes` stays."""
    low, high = wanted.min() + falls.min() - 2, wanted.max() + falls.max() + 2
    for _ in range(64):
        middle = (low + high) / 2
        logs = (middle - falls).clamp(*limits)
        low, high = (middle, high) if (sizes * (logs - wanted)).sum() < 0 else (low, middle)
    return logs


def step_factors(divergences: Mapping[str, float], sizes: Mapping[str, int], exponent: float) -> dict[str, Tensor]:
    """Return the factor on the steps of each matrix, a scalar under its name with `STEP`.

    `divergences` are those that rounding each matrix alone causes, `sizes` its weights. A factor is in proportion to
    the divergence for each weight to the power -`exponent` / 2, within its limits. The mean logarithm of all steps
    stays, and so, nearly, do the bytes. No matrix has a factor if none changes the model.
    """
    found = torch.tensor(list(divergences.values()), dtype=torch.float64)
    # Sums of float32 may end a little below zero, and a rule by name may give every matrix another clip.
    if not divergences or found.max() <= 0:
        return {}
    weights = torch.tensor([sizes[name] for name in divergences], dtype=torch.float64)
    falls = exponent / 2 * (found.clamp(min=LEAST_SHARE * found.max()) / weights).log()
    logs = shared_out(torch.zeros_like(falls), falls, weights, FACTOR_LOGS)
    return dict(zip((name + STEP for name in divergences), logs.exp().float(), strict=True))
