"""Comparison of variants that ran on different machines of one kind, whose speeds differ although their names do not.

Under a clock the speed of a machine is part of the score: machines of one kind scatter by 0.0009 bpb in the public
records. Seeds that are spread over machines carry that noise in their own scatter. Seeds that all ran on one machine
hide it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from golf.errors import GolfError
from golf.report.rows import RunRow
from golf.report.statistics import ROUNDING, Comparison

MACHINE_TERM = "least-squares, with a term for each machine,"


def compare_by_host(
    variant: Sequence[RunRow], reference: Sequence[RunRow], scores: Sequence[float]
) -> Comparison | None:
    """Compare with a term for each machine if one of the two ran on one machine only, and the other elsewhere, too.

    `scores` are those of the variant's runs and then of the reference's, in bits per byte. The result is None where
    an ordinary test will do: all runs are from one machine, both are spread over machines, or a run does not tell its
    machine. Raises `GolfError` if the machine may be the cause of a difference.
    """
    hosts = [[row.host for row in rows] for rows in (variant, reference)]
    mine, other = ({host for host in found if host} for found in hosts)
    if None in (*hosts[0], *hosts[1]) or mine == other or min(len(mine), len(other)) > 1:
        return None
    if not mine & other:
        names = [" and ".join(sorted(found)) for found in (mine, other)]
        raise GolfError(f"its runs are from {names[0]}, the reference's from {names[1]}: the machine may be the cause")
    return _least_squares([*hosts[0], *hosts[1]], len(variant), scores)


def _least_squares(hosts: Sequence[str | None], count: int, scores: Sequence[float]) -> Comparison:
    """Fit score = machine + variant; the first `count` scores are the variant's. Return the variant's term."""
    names = sorted({str(host) for host in hosts})
    design = np.array([[i < count, *(host == name for name in names)] for i, host in enumerate(hosts)], dtype=float)
    df = len(scores) - design.shape[1]
    if df < 1:
        raise GolfError(f"{len(scores)} runs on {len(names)} machines do not tell variant and machine apart")
    inverse = np.linalg.inv(design.T @ design)
    found = inverse @ design.T @ np.asarray(scores)
    residuals = np.asarray(scores) - design @ found
    error = math.sqrt(float(residuals @ residuals) / df * float(inverse[0, 0]))
    if error <= ROUNDING:
        raise GolfError("every seed scored the same: no spread to test against")
    return Comparison(float(found[0]), error, df, MACHINE_TERM)
