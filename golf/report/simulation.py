"""Simulated sweeps: how often a design is wrong, how often it finds a difference, and how many runs that takes.

Scores are drawn, not trained. They go through the code that judges real sweeps: `judge` for sweeps of a fixed size and
`judge_sequentially` for those that stop when decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from golf.bits import bits_per_byte
from golf.report.rows import RunRow
from golf.report.sequential import SequentialPlan, judge_sequentially
from golf.report.statistics import seeds_needed
from golf.report.variants import Variant
from golf.report.verdicts import BETTER, judge
from golf.settings.config import RulesConfig

MEAN = 1.1  # bits per byte; no result depends on it


@dataclass(frozen=True)
class Setting:
    """One kind of sweep. The improvement is that of one variant; where it is 0, all are equal."""

    variants: int  # the reference included
    gain_sd: float  # improvement in standard deviations
    effect_sd: float  # improvement that a sequential sweep is to find, in standard deviations
    sd: float  # standard deviation between seeds, bits per byte
    bytes_per_token: float
    looks: int = 10


@dataclass(frozen=True)
class Outcome:
    """Shares of simulated sweeps and the mean number of their runs."""

    false_better: float
    found: float
    runs: float


def simulate(setting: Setting, rules: RulesConfig, sweeps: int, rng: np.random.Generator) -> Outcome:
    """Return how `sweeps` sequential sweeps of `setting` ended."""
    plan = SequentialPlan(tuple(range(1, setting.looks + 1)), "0", setting.effect_sd * setting.sd)
    wrong_better = found = runs = 0
    for reference, *others in _drawn(setting, sweeps, rng):
        done = judge_sequentially([reference, *others], reference, rules, plan)
        is_better = [done.verdicts[v.id].kind == BETTER for v in others]
        looks = [_looks(done.verdicts[v.id].reason, setting.looks) for v in others]
        found += is_better[0] and setting.gain_sd > 0
        wrong_better += any(is_better[1:] if setting.gain_sd else is_better)
        # The reference runs in every round until the last variant has left.
        runs += sum(looks) + max(looks)
    return Outcome(wrong_better / sweeps, found / sweeps, runs / sweeps)


def fixed_power(setting: Setting, rules: RulesConfig, seeds: int, sweeps: int, rng: np.random.Generator) -> float:
    """Return how often sweeps of a fixed number of seeds find the better variant by Welch's test and Holm."""
    drawn = _drawn(replace(setting, looks=seeds), sweeps, rng)
    return sum(judge(variants, variants[0], rules)["1"].kind == BETTER for variants in drawn) / sweeps


def fixed_seeds(setting: Setting, rules: RulesConfig) -> int:
    """Return the seeds of each variant with which a sweep of a fixed size finds the gain at the rule's power."""
    # Holm's method tests the smallest p-value at the level divided by the comparisons.
    alpha = rules.alpha / (setting.variants - 1)
    margin = bits_per_byte(rules.margin_nats, 1, setting.bytes_per_token)
    gain = setting.gain_sd * setting.sd
    return seeds_needed(gain, setting.sd, alpha=alpha, power=rules.power, margin=margin)


def _drawn(setting: Setting, sweeps: int, rng: np.random.Generator) -> Iterator[list[Variant]]:
    """Yield the variants of each sweep, the reference first."""
    means = np.full((setting.variants, 1), MEAN)
    means[1] -= setting.gain_sd * setting.sd
    for _ in range(sweeps):
        scores = means + setting.sd * rng.standard_normal((setting.variants, setting.looks))
        yield [_variant(number, row, setting) for number, row in enumerate(scores)]


def _variant(number: int, scores: Sequence[float], setting: Setting) -> Variant:
    rows = tuple(
        RunRow(str(number), str(number), seed, val_bpb=float(bpb), bytes_per_token=setting.bytes_per_token, data="text")
        for seed, bpb in enumerate(scores, start=1)
    )
    return Variant(str(number), str(number), rows)


def _looks(reason: str, most: int) -> int:
    """Return the look at which a variant left, from the verdict's reason."""
    words = reason.split("look ")
    return int(words[-1].split()[0]) if len(words) > 1 else most
