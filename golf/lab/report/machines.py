"""Machines: which runs hide their noise, and the fit that takes it out of a comparison.

Under a clock the speed of a machine is part of the score: machines of one kind scatter by 0.0009 bpb in the public
records. Where each run of a variant has a machine of its own, the scatter of its seeds contains that noise. Runs that
share a machine hide it, and so do runs that share a kind of machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from golf.errors import GolfError
from golf.lab.report.rows import OWN, RunRow
from golf.lab.report.statistics import NO_SPREAD, ONE_SEED, ROUNDING, Comparison, pooled_sd
from golf.lab.report.variants import Variant
from golf.words import listed

# End of the reason where no machine ran both.
MACHINE_MAY_BE = "not separable, the machine may be the cause"
MACHINE, KIND, SEED = "machine", "kind of machine", "seed"  # what may have terms
FEWEST_DF = 2  # degrees of freedom within machines with which a variant tells a standard deviation of its own


@dataclass(frozen=True)
class Fit(Comparison):
    """A difference beside a term for each machine, and the noise that the fit leaves."""

    sd: float  # standard deviation of the residuals, bits per byte
    sd_df: int  # its degrees of freedom
    variance: float  # of the difference, for residuals with a variance of 1
    arms: int = 2  # variants whose runs tell the noise
    shared: float = 0.0  # share of the variance within variants that the runs of one seed have in common

    @property
    def of_residuals(self) -> Comparison:
        """Return the same difference by one standard deviation for both sides."""
        return replace(self, standard_error=self.sd * math.sqrt(self.variance), df=self.sd_df)


def check_machines(variant: Variant, reference: Variant) -> None:
    """Raise `GolfError` if no kind of machine ran both, so that a difference may be the machines'."""
    # Imported records spell the same machine in other ways.
    if any(row.source != OWN for v in (variant, reference) for row in v.counted):
        return
    if variant.machines and reference.machines:
        _check_shared(variant.machines, reference.machines)


def by_machine(variant: Variant, reference: Variant, score: str) -> Fit | None:
    """Compare with a term for each machine if one has several runs, else for each kind of machine if there are several.

    The result is None where an ordinary test will do: all runs are from one machine, each is from a machine of its own,
    or no run of one side tells its machine. Runs of a variant that do not are taken to be from another machine. Raises
    `GolfError` if no machine ran both, so that the machine may be the cause of a difference.
    """
    places, term = needed_terms(variant, reference, score)
    # One residual needs one run more than there are terms. Without it no side has two runs on one machine.
    if len(places) <= len(set(places)) + 1:
        return None
    scores = [*variant.scores(score), *reference.scores(score)]
    return least_squares(places, len(variant.scores(score)), scores, term_label([term]))


def needed_terms(variant: Variant, reference: Variant, score: str) -> tuple[list[str], str]:
    """Return the place of each run of the two and what these are, or nothing where an ordinary test will do.

    Raises `GolfError` if no machine ran both, or for one score alone where there would be terms.
    """
    rows = [variant.scored(score), reference.scored(score)]
    for name_of, term in _TOLD:
        mine, other = ({name for row in side if (name := name_of(row))} for side in rows)
        places = _places(name_of, [row for side in rows for row in side])
        if not (mine and other) or len(set(places)) in (1, len(places)):
            continue
        if min(map(len, rows)) < 2:
            raise GolfError(ONE_SEED)
        _check_shared(mine, other)
        return places, term
    return [], ""


def told_places(rows: Sequence[RunRow]) -> tuple[list[str], str]:
    """Return the place of each run of a sweep and what these are, machines or kinds; nothing if they need no terms."""
    for name_of, term in _TOLD:
        places = _places(name_of, rows)
        if any(map(name_of, rows)) and 1 < len(set(places)) < len(places):
            return places, term
    return [], ""


def term_label(terms: Sequence[str]) -> str:
    """Return the name of a fit with these terms; empty without any."""
    return f"least squares by {' and '.join(terms)}" if terms else ""


def _places(name_of: Callable[[RunRow], str | None], rows: Sequence[RunRow]) -> list[str]:
    return [name_of(row) or f"unknown, {row.variant}" for row in rows]


def _host(row: RunRow) -> str | None:
    return row.host


def _kind(row: RunRow) -> str | None:
    return row.kind if row.source == OWN else None


_TOLD: tuple[tuple[Callable[[RunRow], str | None], str], ...] = ((_host, MACHINE), (_kind, KIND))


def _check_shared(mine: Collection[str], other: Collection[str]) -> None:
    if not set(mine) & set(other):
        names = [listed(sorted(of_side)) for of_side in (mine, other)]
        raise GolfError(f"its runs are from {names[0]}, the reference's from {names[1]}: {MACHINE_MAY_BE}")


def least_squares(places: Sequence[str], count: int, scores: Sequence[float], test: str = "") -> Fit:
    """Compare variants that share machines: fit score = machine + variant, and return the variant's term.

    `places` are the machines of the `scores`, of which the first `count` are the variant's. The two may scatter
    differently where both tell it within machines, as in Welch's test, which this is on a single machine.
    """
    names, y = sorted(set(places)), np.asarray(scores)
    design = np.array([[i < count, *(place == name for name in names)] for i, place in enumerate(places)], dtype=float)
    inverse = np.linalg.inv(design.T @ design)
    weights = inverse[0] @ design.T
    residuals = y - design @ (inverse @ design.T @ y)
    df: float = len(scores) - design.shape[1]
    sd, sd_df = math.sqrt(float(residuals @ residuals) / df), round(df)
    error = of_all = sd * math.sqrt(float(inverse[0, 0]))
    own = [_within(places[side], y[side]) for side in (slice(count), slice(count, None))]
    told = sorted(known[1] for known in own)
    # One degree of freedom is better than the spread of the other side, which may be another.
    if told[0] >= FEWEST_DF or 0 < told[0] < told[1]:
        parts = [known[0] ** 2 * float(w @ w) for known, w in zip(own, np.split(weights, [count]), strict=True)]
        error = math.sqrt(sum(parts))
        below = sum(part**2 / known[1] for part, known in zip(parts, own, strict=True))
        df = sum(parts) ** 2 / below if below else df
    if len(names) > 1:
        # Few runs choose between the two, and estimate Satterthwaite's: without one less, 0.07 errs where 0.05 is said.
        df = max(1.0, told[0] if error != of_all else 1.0, df - 1)
    if error <= ROUNDING:
        raise GolfError(NO_SPREAD)
    return Fit(float(weights @ y), error, df, test, sd, sd_df, float(inverse[0, 0]))


def _within(places: Sequence[str], scores: Iterable[float]) -> tuple[float, int]:
    """Return the standard deviation of the scores within their machines and its degrees of freedom."""
    of_each = [[s for s, p in zip(scores, places, strict=True) if p == place] for place in set(places)]
    return pooled_sd(of_each) or (0.0, 0)
