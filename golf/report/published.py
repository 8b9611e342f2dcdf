"""The noise of a published score: a mean of few runs, on which a comparison depends as much as on one's own runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from golf.errors import GolfError
from golf.report.statistics import Comparison


@dataclass(frozen=True)
class PublishedNoise:
    """How many runs a published score is the mean of, and how much they scatter."""

    runs: int = 1
    sd: float | None = None  # bits per byte; None if they scatter as the runs that are compared with them

    def __str__(self) -> str:
        scatter = "as these do" if self.sd is None else f"by {self.sd:g} bpb"
        return f"the mean of {self.runs} runs that scatter {scatter}" if self.runs > 1 else f"one run, {self._one()}"

    def _one(self) -> str:
        return "with the noise of these" if self.sd is None else f"with a standard deviation of {self.sd:g} bpb"

    def factor(self, sd: float, count: int) -> float:
        """Return by how much the noise grows over that of a mean of `count` runs with standard deviation `sd`."""
        return math.sqrt(1 + count / self.runs * (1.0 if self.sd is None else (self.sd / sd) ** 2))

    def added_to(self, found: Comparison, count: int) -> Comparison:
        """Return a comparison of `count` runs with an exact score as one with the mean of noisy runs.

        A given standard deviation is known, so that the degrees of freedom grow (Satterthwaite 1946).
        """
        own = found.standard_error**2
        other = own * count / self.runs if self.sd is None else self.sd**2 / self.runs
        error = math.sqrt(own + other)
        is_known = self.sd is not None and not math.isinf(found.df)
        df = found.df * ((own + other) / own) ** 2 if is_known else found.df
        return replace(found, standard_error=error, df=df)


def published_noise(against: float | None, runs: int | None, sd: float | None) -> PublishedNoise | None:
    """Return the noise that was given for a published score; None without any. Raises `GolfError` for no such thing."""
    if runs is None and sd is None:
        return None
    if against is None:
        raise GolfError("--against-n and --against-sigma tell the noise of a published score: give it with --against.")
    if runs is not None and runs < 1:
        raise GolfError(f"--against-n {runs} cannot be a number of runs: give 1 or more.")
    if sd is not None and not (math.isfinite(sd) and sd > 0):
        raise GolfError(f"--against-sigma {sd:g} cannot be a standard deviation: give one above 0.")
    return PublishedNoise(runs or 1, sd)
