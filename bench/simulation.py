"""Simulated sweeps: how often a design is wrong, how often it finds a difference, and how many runs that takes.

Scores are drawn, not trained. They go through the code that judges real sweeps: `judge` for sweeps of a fixed size and
`judge_sequentially` for those that stop when decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from golf.bits import bits_per_byte
from golf.lab.report.rows import RunRow
from golf.lab.report.sequential import SequentialPlan, judge_sequentially
from golf.lab.report.statistics import seeds_needed
from golf.lab.report.variants import Variant
from golf.lab.report.verdicts import BETTER, WORSE, judge
from golf.settings.config import RulesConfig

SD = 0.0007  # standard deviation between seeds of the public records, bits per byte
MEAN = 1.1
BYTES_PER_TOKEN = 2.43593  # FineWeb at vocabulary 1024
MACHINE_SD = 1.3  # standard deviation between machines of one kind in those between seeds
# Name → number of the machine on which a variant runs its k-th seed of n; variant 0 is the reference.
LAYOUTS: dict[str, Callable[[int, int, int], int]] = {
    "each run on a machine of its own": lambda variant, k, n: variant * n + k,
    "two machines of its own in turn": lambda variant, k, n: 2 * variant + k % 2,
    "all but one on one machine of its own": lambda variant, k, n: 2 * variant + (k == n - 1),
    "two machines in opposite shares": lambda variant, k, n: (k % 5 == 0) ^ (variant > 0),
    "four machines in turn": lambda variant, k, n: (variant + k) % 4,
    "4 of 5 on the reference's machine": lambda variant, k, n: int(variant > 0 and k % 5 == 4),
    "1 of 5 on the reference's machine": lambda variant, k, n: int(variant > 0 and k % 5 > 0),
}


@dataclass(frozen=True)
class Setting:
    """One kind of sweep: what is true, and what is believed."""

    name: str
    variants: int  # the reference included
    gain_sd: float  # improvement of one variant in standard deviations; 0 = all are equal
    sd_ratio: float = 1.0  # standard deviation of the reference relative to the others
    pairs: bool = False  # variants share checkpoints, so that their differences come from the number format alone
    looks: int = 10
    effect_sd: float | None = None  # improvement worth finding in standard deviations; None = what the last look finds
    sd: float = SD  # standard deviation between seeds, bits per byte
    bytes_per_token: float = BYTES_PER_TOKEN
    layout: str = ""  # key of LAYOUTS; empty if no run tells its machine and all are alike
    kind_gain_sd: float | None = None  # machine 1 is of a kind that is better by so many standard deviations
    shared_r: float = 0.0  # correlation of the scores that two variants have with one seed

    def machine(self, variant: int, k: int) -> int:
        """Return the number of the machine on which the variant runs its k-th seed."""
        return LAYOUTS[self.layout](variant, k, self.looks)


@dataclass(frozen=True)
class Outcome:
    """Shares of simulated sweeps and the mean number of their runs."""

    false_better: float
    false_worse: float
    found: float
    runs: float
    most_runs: int


def simulate(setting: Setting, rules: RulesConfig, sweeps: int, rng: np.random.Generator) -> Outcome:
    """Return how `sweeps` sequential sweeps of `setting` ended."""
    seeds = tuple(range(1, setting.looks + 1))
    effect = None if setting.effect_sd is None else setting.effect_sd * setting.sd
    plan = SequentialPlan(seeds, "0", effect)
    wrong_better = wrong_worse = found = runs = 0
    for scores in _drawn(setting, sweeps, rng):
        reference, *others = [_variant(i, row, setting) for i, row in enumerate(scores)]
        done = judge_sequentially([reference, *others], reference, rules, plan)
        kinds = [done.verdicts[v.id].kind for v in others]
        looks = [_looks(done.verdicts[v.id].reason, setting.looks) for v in others]
        better, equal = kinds[0] == BETTER, kinds[1:] if setting.gain_sd else kinds
        found += better and setting.gain_sd > 0
        wrong_better += BETTER in equal
        wrong_worse += WORSE in equal
        # The reference runs in every round until the last variant has left.
        runs += sum(looks) + max(looks)
    most = setting.looks * setting.variants
    return Outcome(wrong_better / sweeps, wrong_worse / sweeps, found / sweeps, runs / sweeps, most)


def fixed_power(setting: Setting, rules: RulesConfig, seeds: int, sweeps: int, rng: np.random.Generator) -> float:
    """Return how often sweeps of a fixed number of seeds find the better variant by Welch's test and Holm."""
    found = 0
    for scores in _drawn(replace(setting, looks=seeds), sweeps, rng):
        reference, *others = [_variant(i, row, setting) for i, row in enumerate(scores)]
        found += judge([reference, *others], reference, rules)["1"].kind == BETTER
    return found / sweeps


def fixed_false_better(setting: Setting, rules: RulesConfig, sweeps: int, rng: np.random.Generator) -> float:
    """Return how often some variant is falsely better in sweeps of a fixed size, with a run for each look."""
    wrong = 0
    for scores in _drawn(setting, sweeps, rng):
        variants = [_variant(i, row, setting) for i, row in enumerate(scores)]
        wrong += any(verdict.kind == BETTER for verdict in judge(variants, variants[0], rules).values())
    return wrong / sweeps


def judged_again(setting: Setting, rules: RulesConfig, sweeps: int, rng: np.random.Generator) -> float:
    """Return how often the best variant of a sweep is falsely better in a second sweep of it, on the same runs."""
    wrong = 0
    for scores in _drawn(setting, sweeps, rng):
        reference, *others = [_variant(i, row, setting) for i, row in enumerate(scores)]
        best = others[int(np.argmin(scores[1:].mean(1)))]
        again = replace(best, rivals=tuple(others))
        wrong += judge([reference, again], reference, rules)[best.id].kind == BETTER
    return wrong / sweeps


def fixed_seeds(setting: Setting, rules: RulesConfig) -> int:
    """Return the seeds of each variant with which a sweep of a fixed size finds the gain at the rule's power."""
    # Holm's method tests the smallest p-value at the level divided by the comparisons.
    alpha = rules.alpha / (setting.variants - 1)
    margin = bits_per_byte(rules.margin_nats, 1, setting.bytes_per_token)
    gain = setting.gain_sd * setting.sd
    return seeds_needed(gain, setting.sd, alpha=alpha, power=rules.power, margin=margin)


def _drawn(setting: Setting, sweeps: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    sd = np.full((setting.variants, 1), setting.sd)
    sd[0] *= setting.sd_ratio
    means = np.full((setting.variants, 1), MEAN)
    means[1] -= setting.gain_sd * setting.sd
    of_run, of_seed = np.sqrt([1 - setting.shared_r, setting.shared_r])
    for _ in range(sweeps):
        noise = of_run * rng.standard_normal((*means.shape[:1], setting.looks))
        if setting.shared_r:
            noise = noise + of_seed * rng.standard_normal(setting.looks)
        yield means + sd * noise + _of_machines(setting, rng)


def _of_machines(setting: Setting, rng: np.random.Generator) -> np.ndarray:
    """Return what the machines add to the scores, in bits per byte."""
    places = np.zeros((setting.variants, setting.looks), dtype=int)
    if not setting.layout:
        return places
    for variant, k in np.ndindex(places.shape):
        places[variant, k] = setting.machine(variant, k)
    of_each = MACHINE_SD * rng.standard_normal(places.max() + 1)
    if setting.kind_gain_sd is not None:
        of_each = np.array([0.0, -setting.kind_gain_sd])
    return setting.sd * of_each[places]


def _variant(number: int, scores: Sequence[float], setting: Setting) -> Variant:
    def row(seed: int, bpb: float) -> RunRow:
        # Equal scores before quantization are the sign of a shared checkpoint.
        before = MEAN + seed * setting.sd if setting.pairs else None
        after = bpb + (before - MEAN if before else 0.0)
        place = f"m{setting.machine(number, seed - 1)}" if setting.layout else None
        return RunRow(
            str(number),
            str(number),
            seed,
            pre_quant_bpb=before,
            post_quant_bpb=after,
            val_bpb=after,
            bytes_per_token=setting.bytes_per_token,
            data="text",
            machine=None if setting.kind_gain_sd is None else place,
            host=place if setting.kind_gain_sd is None else None,
        )

    rows = tuple(row(seed, float(bpb)) for seed, bpb in enumerate(scores, start=1))
    return Variant(str(number), str(number), rows)


def _looks(reason: str, most: int) -> int:
    """Return the look at which a variant left, from the verdict's reason."""
    words = reason.split("look ")
    return int(words[-1].split()[0]) if len(words) > 1 else most
