"""Simulate sweeps to see how often verdicts are wrong, how often they find a difference, and how many runs that takes.

    python -m bench.designs                      # every setting, 2,000 sweeps each: about ten minutes
    python -m bench.designs --sweeps 200 --only "gain 2"    # a quick look at some settings
    python -m bench.designs --rules strict

Scores are drawn, not trained. They go through the code that judges real sweeps: `judge` for sweeps of a fixed size and
`judge_sequentially` for those that stop when decided.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from golf.report.rows import RunRow
from golf.report.seed_noise import MOST_DF, SeedPrior
from golf.report.sequential import SequentialPlan, judge_sequentially
from golf.report.statistics import seeds_needed
from golf.report.variants import Variant
from golf.report.verdicts import BETTER, WORSE, judge
from golf.settings.composition import rules_named
from golf.settings.config import RulesConfig

SD = 0.0007  # standard deviation between seeds of the public records, bits per byte
MEAN = 1.1
BYTES_PER_TOKEN = 2.43593


@dataclass(frozen=True)
class Setting:
    """One kind of sweep: what is true, and what is believed."""

    name: str
    variants: int  # the reference included
    gain_sd: float  # improvement of one variant in standard deviations; 0 = all are equal
    sd_ratio: float = 1.0  # standard deviation of the reference relative to the others
    prior_ratio: float | None = None  # the prior's standard deviation relative to the true one; None = Welch's test
    looks: int = 10


SETTINGS = (
    *(Setting(f"equal, {k} variants", k, 0.0) for k in (2, 6)),
    *(Setting(f"equal, {k} variants, prior", k, 0.0, prior_ratio=1.0) for k in (2, 6)),
    # As many rounds as find the gain about 80 % of the time.
    *(Setting(f"gain {g:g} sd, 6 variants", 6, g, looks=n) for g, n in ((1.0, 30), (2.0, 9), (3.0, 6), (4.0, 5))),
    *(
        Setting(f"gain {g:g} sd, 6 variants, prior", 6, g, prior_ratio=1.0, looks=n)
        for g, n in ((1.0, 28), (2.0, 7), (3.0, 4), (4.0, 3))
    ),
    Setting("equal, reference 3 times as noisy", 6, 0.0, sd_ratio=3.0),
    Setting("equal, reference 3 times as noisy, prior", 6, 0.0, sd_ratio=3.0, prior_ratio=1.0),
    Setting("equal, prior half of the truth", 6, 0.0, prior_ratio=0.5),
    Setting("equal, prior twice the truth", 6, 0.0, prior_ratio=2.0),
)


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
    prior = None if setting.prior_ratio is None else SeedPrior(SD * setting.prior_ratio, MOST_DF, 30)
    plan = SequentialPlan(seeds, "0", prior=prior)
    wrong_better = wrong_worse = found = runs = 0
    for scores in _drawn(setting, sweeps, rng):
        reference, *others = [_variant(i, row) for i, row in enumerate(scores)]
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
        reference, *others = [_variant(i, row) for i, row in enumerate(scores)]
        found += judge([reference, *others], reference, rules)["1"].kind == BETTER
    return found / sweeps


def fixed_seeds(setting: Setting, rules: RulesConfig) -> int:
    """Return the seeds of each variant with which a sweep of a fixed size finds the gain at the rule's power."""
    # Holm's method tests the smallest p-value at the level divided by the comparisons.
    alpha = rules.alpha / (setting.variants - 1)
    return seeds_needed(setting.gain_sd * SD, SD, alpha=alpha, power=rules.power)


def _drawn(setting: Setting, sweeps: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    sd = np.full((setting.variants, 1), SD)
    sd[0] *= setting.sd_ratio
    means = np.full((setting.variants, 1), MEAN)
    means[1] -= setting.gain_sd * SD
    for _ in range(sweeps):
        yield means + sd * rng.standard_normal((setting.variants, setting.looks))


def _variant(number: int, scores: Sequence[float]) -> Variant:
    rows = tuple(
        RunRow(str(number), str(number), seed, val_bpb=float(bpb), bytes_per_token=BYTES_PER_TOKEN, data="text")
        for seed, bpb in enumerate(scores, start=1)
    )
    return Variant(str(number), str(number), rows)


def _looks(reason: str, most: int) -> int:
    """Return the look at which a variant left, from the verdict's reason."""
    words = reason.split("look ")
    return int(words[-1].split()[0]) if len(words) > 1 else most


def main() -> None:
    """Print a table of settings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=2000)
    parser.add_argument("--rules", default="house")
    parser.add_argument("--only", default="", help="settings whose names contain this")
    args = parser.parse_args()
    rules, rng = rules_named(args.rules), np.random.default_rng(1)
    print("| setting | false better | false worse | found | runs | most | fixed: runs | found |")
    print("|---|---|---|---|---|---|---|---|")
    for setting in (s for s in SETTINGS if args.only in s.name):
        done = simulate(setting, rules, args.sweeps, rng)
        fixed = ["–", "–"]
        if setting.gain_sd:
            seeds = fixed_seeds(setting, rules)
            fixed = [str(seeds * setting.variants), f"{fixed_power(setting, rules, seeds, args.sweeps, rng):.2f}"]
        print(
            f"| {setting.name} | {done.false_better:.3f} | {done.false_worse:.3f} | "
            f"{f'{done.found:.2f}' if setting.gain_sd else '–'} | {done.runs:.1f} | {done.most_runs} | "
            f"{fixed[0]} | {fixed[1]} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
