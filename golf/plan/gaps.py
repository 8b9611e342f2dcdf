"""How many bits a weight trained matrices take above or below Gaussian ones: the gap that corrects a rehearsal.

Trained rows are nearly Gaussian, but not independent: columns of embeddings are correlated, which golf's own coder
uses, columns of wide matrices differ in size, and where the largest weight sets the scale, heavy tails count. A gap
changes smoothly with the path that the optimizer walked, the batch, the matrix's shape and the techniques: those of
finished runs say what to expect, by a Gaussian process around a shipped plane for each role (docs/benchmarks.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

# distances that count as one: of log path, log batch, log columns / rows, log columns
SCALES = (0.7, 1.0, 0.4, 0.7)
OTHER_TECHNIQUES, OTHER_HEAD = 0.7, 2.0
NORMAL_PATH, NORMAL_BATCH = 3.0, 8192  # where shipped gaps are stated


@dataclass(frozen=True)
class Place:
    """Where a role of a run lies: what its gap depends on."""

    path: float  # learning rate summed over the steps, see `spread.path_length`
    batch_tokens: int
    rows: int
    columns: int
    tech: frozenset[str]
    tied: bool

    def coordinates(self) -> tuple[float, float, float, float]:
        aspect = math.log(self.columns / self.rows)
        return math.log(max(self.path, 1e-3)), math.log(self.batch_tokens), aspect, math.log(self.columns)


class Measured(NamedTuple):
    """A finished run's gap, bits a weight."""

    place: Place
    bits: float


class Gap(NamedTuple):
    """Expected gap in bits a weight, and its standard deviation."""

    bits: float
    sd: float


class Plane(NamedTuple):
    """Shipped gap: `bits` at path 3, 8,192 tokens a step and a square matrix, and its slopes there."""

    bits: float
    path: float = 0.0
    batch: float = 0.0
    aspect: float = 0.0
    sd: float = 0.03  # of what it leaves unexplained
    noise: float = 0.01  # of one run against its neighbours

    def at(self, place: Place) -> float:
        path, batch, aspect, _ = place.coordinates()
        path, batch = path - math.log(NORMAL_PATH), batch - math.log(NORMAL_BATCH)
        return self.bits + self.path * path + self.batch * batch + self.aspect * aspect


def distance(one: Place, other: Place) -> float:
    """Between two places of one role, in units over which a gap may change."""
    steps = zip(one.coordinates(), other.coordinates(), SCALES, strict=True)
    squares = [((a - b) / scale) ** 2 for a, b, scale in steps]
    squares += [(OTHER_TECHNIQUES * (one.tech != other.tech)) ** 2, (OTHER_HEAD * (one.tied != other.tied)) ** 2]
    return math.sqrt(sum(squares))


def expected_gap(plane: Plane, place: Place, evidence: Sequence[Measured]) -> Gap:
    """Gap at `place`: the plane, and what nearby runs are off it (a Gaussian process, squared exponential)."""
    shipped = plane.at(place)
    if not evidence:
        return Gap(shipped, math.hypot(plane.sd, plane.noise))
    near = np.array([distance(place, known.place) for known in evidence])
    apart = np.array([[distance(a.place, b.place) for b in evidence] for a in evidence])
    covariance = plane.sd**2 * np.exp(-0.5 * apart**2) + plane.noise**2 * np.eye(len(evidence))
    shared = plane.sd**2 * np.exp(-0.5 * near**2)
    off = np.array([known.bits - plane.at(known.place) for known in evidence])
    weights = np.linalg.solve(covariance, shared)
    variance = max(plane.sd**2 - float(weights @ shared), 0.0) + plane.noise**2
    return Gap(shipped + float(weights @ off), math.sqrt(variance))
