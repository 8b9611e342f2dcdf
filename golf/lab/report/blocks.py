"""Blocks: two variants compared by all runs of their sweep, with a term for what the runs of one seed share.

Score = variant + seed + machine + noise, by least squares over the sweep (randomized blocks, Fisher 1935). Seeds that
run in every variant share much of their noise in short runs, r = 0.8, and little at record scale. No correlation is
estimated: the terms for seeds are there if they show (F test), and the noise is what the fit leaves, of all variants.
Where the noise of one of the two stands out, its own is taken.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

from golf.lab.report.machines import SEED, Fit, needed_terms, term_label, told_places
from golf.lab.report.rows import OWN
from golf.lab.report.statistics import ROUNDING, WELCH, Comparison, is_constant
from golf.lab.report.variants import Variant

POOLED = "pooled"
# p of the F tests. A noise that is overlooked errs and one that is not there costs power, most of all the reference's,
# which is in every comparison. By simulation (bench/designs.py): at these the level holds in all cells.
SEEDS_SHOW, WIDE_REFERENCE, WIDE_VARIANT = 0.05, 0.4, 0.1
WIDE_OF_SEVERAL = 0.2  # of each variant of a contrast; at .1 one of four with three times the noise errs in .072
SEEDS_SHOW_IN_TWO = 0.01  # where two variants alone tell it, the noise that is left is small whenever seeds show
WIDE_OTHER = 0.05  # below which, divided by their number, a variant does not tell the noise of others
# A third variant stands out, too, where the other two agree by luck, which are then compared alone.
WIDE_THIRD = 0.003
LEAST_ESTIMABLE = 1e-6  # error of a contrast that a rank-deficient fit cannot give, in its own units
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Model:
    """The fit of some variants."""

    squares: float  # sum of the squared residuals
    df: int
    columns: Floats  # run × term
    inverse: Floats  # term × run
    arm: NDArray[np.int_]  # number of the variant of each run

    @property
    def variance(self) -> float:
        """Return the variance of the residuals."""
        return self.squares / self.df

    def weights(self, factors: Mapping[int, float]) -> Floats | None:
        """Return the weight of each run in the sum of variants times `factors`; None if the runs do not tell it."""
        # Terms for variants are the first columns, by rising number.
        numbers = np.unique(self.arm)
        contrast = np.zeros(self.columns.shape[1])
        contrast[np.searchsorted(numbers, list(factors))] = list(factors.values())
        weights = np.asarray(contrast @ self.inverse)
        return weights if np.abs(weights @ self.columns - contrast).max() < LEAST_ESTIMABLE else None

    def free(self, arm: int) -> float:
        """Return how much of the residuals' degrees of freedom lies in the runs of a variant."""
        own = self.arm == arm
        return float(1.0 * own.sum() - np.einsum("ij,ji->i", self.columns, self.inverse)[own].sum())


class Blocks:
    """The runs of a sweep, with its fits."""

    def __init__(self, variants: Sequence[Variant], score: str) -> None:
        """Take the trained variants with two scores or more; imported runs share neither seeds nor code."""
        taken = [v for v in variants if len(v.scores(score)) > 1 and all(row.source == OWN for row in v.counted)]
        rows = [row for v in taken for row in v.scored(score)]
        self.score = score
        self.number = {v.id: number for number, v in enumerate(taken)}
        self.arm = np.array([number for number, v in enumerate(taken) for _ in v.scored(score)], dtype=int)
        self.scores = np.array([bpb for v in taken for bpb in v.scores(score)])
        self.seeds = [row.seed for row in rows]
        self.places, self.place = told_places(rows)
        self._models: dict[tuple[frozenset[int], bool], _Model] = {}
        self._alike: dict[bool, frozenset[int]] = {}

    def compare(self, variant: Variant, reference: Variant) -> Fit | None:
        """Compare two variants of the sweep; None where it tells no more than their own scores do.

        Raises `GolfError` if machines may be the cause of a difference.
        """
        if variant.id not in self.number or reference.id not in self.number:
            return None
        if all(is_constant(v.scores(self.score)) for v in (variant, reference)):
            return None
        needed_terms(variant, reference, self.score)
        pair = self.number[variant.id], self.number[reference.id]
        for with_seeds in (True, False) if self._seeds_show else (False,):
            arms = self._alike_arms(with_seeds) | frozenset(pair)
            if fit := self._fit(*pair, arms, with_seeds):
                return fit
        return None

    def contrast(self, factors: Mapping[str, float]) -> Comparison | None:
        """Compare the sum of variants' means times `factors`, by id, with 0; None if the runs do not tell it.

        The factors add up to 0. Where one of the variants scatters more than the rest, each has its own noise.
        """
        if not factors.keys() <= self.number.keys():
            return None
        of = {self.number[id]: factor for id, factor in factors.items()}
        for with_seeds in (True, False) if self._seeds_show else (False,):
            arms = self._alike_arms(with_seeds) | frozenset(of)
            model = self._model(arms, with_seeds)
            weights = model.weights(of)
            if weights is None or model.df < 1 or model.variance <= ROUNDING**2:
                continue
            if any(self._p_of_width(model, arm, arms, with_seeds) < WIDE_OF_SEVERAL for arm in of):
                return None if self.place else self._by_own_noise(of)
            difference = float(weights @ self.scores[self._of(arms)])
            return Comparison(difference, math.sqrt(float(weights @ weights) * model.variance), model.df, POOLED)
        return None

    def _by_own_noise(self, factors: Mapping[int, float]) -> Comparison:
        """Compare a sum of means with 0 as Welch's test compares two."""
        scores = [self.scores[self.arm == arm] for arm in factors]
        parts = [f**2 * float(np.var(x, ddof=1)) / len(x) for f, x in zip(factors.values(), scores, strict=True)]
        df = sum(parts) ** 2 / sum(part**2 / (len(x) - 1) for part, x in zip(parts, scores, strict=True))
        difference = sum(f * float(np.mean(x)) for f, x in zip(factors.values(), scores, strict=True))
        return Comparison(difference, math.sqrt(sum(parts)), df, WELCH)

    def _fit(self, variant: int, reference: int, arms: frozenset[int], with_seeds: bool) -> Fit | None:
        model = self._model(arms, with_seeds)
        weights = model.weights({variant: 1.0, reference: -1.0})
        if weights is None or model.df < 1 or model.variance <= ROUNDING**2 or len(arms) < 2 + (not with_seeds):
            return None
        limits = {variant: WIDE_VARIANT, reference: WIDE_REFERENCE}
        wide = [arm for arm, limit in limits.items() if self._p_of_width(model, arm, arms, with_seeds) < limit]
        if len(wide) > 1:
            # Both stand out from the rest, which then tells nothing about them.
            return self._fit(variant, reference, frozenset(limits), with_seeds) if len(arms) > 2 else None
        square, df = float(weights @ weights) * model.variance, float(model.df)
        for arm in wide:
            square, df = self._with_own_noise(model, weights, arm, arms, with_seeds)
        difference = float(weights @ self.scores[self._of(arms)])
        test = term_label([SEED] * with_seeds + [self.place] * bool(self.place)) or POOLED
        spread, factor = math.sqrt(model.variance), float(weights @ weights)
        shared = self._shared(arms) if with_seeds else 0.0
        return Fit(difference, math.sqrt(square), df, test, spread, model.df, factor, len(arms), shared)

    def _with_own_noise(
        self, model: _Model, weights: Floats, arm: int, arms: frozenset[int], with_seeds: bool
    ) -> tuple[float, float]:
        """Return the squared standard error and its degrees of freedom if one variant has a noise of its own.

        What the runs of the variant add to the squares of the fit has the expectation
        share · (its variance) + (1 − share) · (that of the rest), and is independent of the rest's.
        """
        rest = self._model(arms - {arm}, with_seeds)
        added_df = model.df - rest.df
        added = (model.squares - rest.squares) / added_df
        share = model.free(arm) / added_df
        mine = model.arm == arm
        own, others = float(weights[mine] @ weights[mine]), float(weights[~mine] @ weights[~mine])
        parts = own / share * added, (others - own * (1 - share) / share) * rest.variance
        square = sum(parts)
        return square, square**2 / (parts[0] ** 2 / added_df + parts[1] ** 2 / rest.df)  # Satterthwaite 1946

    def _p_of_width(self, model: _Model, arm: int, arms: frozenset[int], with_seeds: bool) -> float:
        """Return the p of the F test that the variant scatters no more than the rest; 1 if they do not tell it."""
        if len(arms) < 3:
            return 1.0
        rest = self._model(arms - {arm}, with_seeds)
        added_df = model.df - rest.df
        if min(added_df, rest.df) < 1:
            return 1.0
        added = max(0.0, model.squares - rest.squares) / added_df
        return float(fdtrc(added_df, rest.df, added / max(rest.variance, ROUNDING**2)))

    def _alike_arms(self, with_seeds: bool) -> frozenset[int]:
        """Return the variants without those that scatter more than the rest (F test, Bonferroni).

        A learning rate that is far too high scatters ten times as much, and would hide what the others show.
        """
        if with_seeds not in self._alike:
            arms = frozenset(self.number.values())
            while len(arms) > 2:
                model = self._model(arms, with_seeds)
                p, widest = min((self._p_of_width(model, arm, arms, with_seeds), arm) for arm in arms)
                if p >= (WIDE_OTHER if len(arms) > 3 else WIDE_THIRD) / len(arms):
                    break
                arms -= {widest}
            self._alike[with_seeds] = arms
        return self._alike[with_seeds]

    @functools.cached_property
    def _seeds_show(self) -> bool:
        """Tell whether the runs of one seed move together over the variants, by an F test."""
        arms = self._alike_arms(False)
        # Two variants with terms for machines leave too little to tell a third kind of term.
        if None in self.seeds or len(arms) < 2 + bool(self.place):
            return False
        with_seeds, without = self._model(arms, True), self._model(arms, False)
        added_df = without.df - with_seeds.df
        if min(added_df, with_seeds.df) < 1:
            return False
        added = (without.squares - with_seeds.squares) / added_df
        limit = SEEDS_SHOW if len(arms) > 2 else SEEDS_SHOW_IN_TWO
        return float(fdtrc(added_df, with_seeds.df, added / max(with_seeds.variance, ROUNDING**2))) < limit

    def _shared(self, arms: frozenset[int]) -> float:
        """Return the share of the variance within variants that the runs of a seed have in common."""
        return max(0.0, 1 - self._model(arms, True).variance / self._model(arms, False).variance)

    def _of(self, arms: frozenset[int]) -> NDArray[np.bool_]:
        """Return which runs are the variants'."""
        return np.array([number in arms for number in range(len(self.number))])[self.arm]

    def _model(self, arms: frozenset[int], with_seeds: bool) -> _Model:
        if (key := (arms, with_seeds)) not in self._models:
            rows = self._of(arms)
            terms: list[Sequence[object]] = [self.seeds] * with_seeds + [self.places] * bool(self.place)
            columns = [_indicators(self.arm[rows].tolist())]
            # The first of each further kind of term is that of the variants.
            columns += [_indicators([v for v, is_in in zip(term, rows, strict=True) if is_in])[:, 1:] for term in terms]
            design = np.hstack(columns)
            inverse: Floats = np.asarray(np.linalg.pinv(design), dtype=np.float64)
            residuals = self.scores[rows] - design @ (inverse @ self.scores[rows])
            df = len(residuals) - round(float(np.einsum("ij,ji->", design, inverse)))
            self._models[key] = _Model(float(residuals @ residuals), df, design, inverse, self.arm[rows])
        return self._models[key]


def _indicators(values: Sequence[object]) -> Floats:
    """Return a column for each different value, 1.0 where it stands."""
    names = list(dict.fromkeys(values))
    return np.array([[value == name for name in names] for value in values], dtype=float)
