"""Excess bits: how many more bits a weight trained matrices take than Gaussian ones. They correct a simulation.

Trained rows are nearly Gaussian, but not independent. Columns of embeddings are correlated, and golf's own coder uses
that. Columns of wide matrices differ in size, and heavy tails count where the largest weight sets the scale. The excess
changes smoothly with the optimizer's path length, the batch, the matrix's shape and the techniques. A Gaussian process
around a shipped linear prior predicts it for each role from finished runs (docs/benchmarks.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

# Length scales of the Gaussian process: log path, log batch, log columns / rows, log columns
SCALES = (0.7, 1.0, 0.4, 0.7)
OTHER_TECHNIQUES, OTHER_HEAD = 0.7, 2.0  # distances between runs that differ in techniques, in tying of embeddings
NORMAL_PATH, NORMAL_BATCH = 3.0, 8192  # path length and tokens a step at which priors are stated


@dataclass(frozen=True)
class Features:
    """The properties of a run that the excess bits of a role depend on."""

    path: float  # learning rate summed over the steps, see `weight_size.path_length`
    batch_tokens: int
    rows: int
    columns: int
    tech: frozenset[str]  # names of techniques
    tied: bool  # embeddings are tied

    def coordinates(self) -> tuple[float, float, float, float]:
        """Return the logarithms of path, batch, columns / rows and columns."""
        aspect = math.log(self.columns / self.rows)
        return math.log(max(self.path, 1e-3)), math.log(self.batch_tokens), aspect, math.log(self.columns)


class Measured(NamedTuple):
    """The excess of one role in a finished run, in bits a weight."""

    features: Features
    bits: float


class ExcessBits(NamedTuple):
    """Expected excess in bits a weight, and its standard deviation."""

    bits: float
    sd: float


class Prior(NamedTuple):
    """A shipped linear prior of the excess, in bits a weight."""

    bits: float  # at path 3, 8,192 tokens a step and a square matrix
    path: float = 0.0  # slope over log path
    batch: float = 0.0  # slope over log batch
    aspect: float = 0.0  # slope over log columns / rows
    sd: float = 0.03  # standard deviation of smooth deviations from the prior
    noise: float = 0.01  # standard deviation of one run against its neighbours

    def at(self, features: Features) -> float:
        """Return the expected excess in bits a weight."""
        path, batch, aspect, _ = features.coordinates()
        path, batch = path - math.log(NORMAL_PATH), batch - math.log(NORMAL_BATCH)
        return self.bits + self.path * path + self.batch * batch + self.aspect * aspect


def distance(one: Features, other: Features) -> float:
    """Return the distance of two runs of one role, in length scales of the Gaussian process."""
    steps = zip(one.coordinates(), other.coordinates(), SCALES, strict=True)
    squares = [((a - b) / scale) ** 2 for a, b, scale in steps]
    squares += [(OTHER_TECHNIQUES * (one.tech != other.tech)) ** 2, (OTHER_HEAD * (one.tied != other.tied)) ** 2]
    return math.sqrt(sum(squares))


def expected_excess(prior: Prior, features: Features, evidence: Sequence[Measured]) -> ExcessBits:
    """Return the posterior of a Gaussian process with a squared exponential kernel around `prior`."""
    shipped = prior.at(features)
    if not evidence:
        return ExcessBits(shipped, math.hypot(prior.sd, prior.noise))
    near = np.array([distance(features, known.features) for known in evidence])
    apart = np.array([[distance(a.features, b.features) for b in evidence] for a in evidence])
    covariance = prior.sd**2 * np.exp(-0.5 * apart**2) + prior.noise**2 * np.eye(len(evidence))
    shared = prior.sd**2 * np.exp(-0.5 * near**2)
    off = np.array([known.bits - prior.at(known.features) for known in evidence])
    weights = np.linalg.solve(covariance, shared)
    # Rounding can bring the posterior variance below zero. The noise is added because a new run has it, too.
    variance = max(prior.sd**2 - float(weights @ shared), 0.0) + prior.noise**2
    return ExcessBits(shipped + float(weights @ off), math.sqrt(variance))
