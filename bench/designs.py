"""Simulate sweeps to see how often verdicts are wrong, how often they find a difference, and how many runs that takes.

python -m bench.designs                      # every setting, 2,000 sweeps each: about five minutes
python -m bench.designs --sweeps 200 --only "gain 2"    # a quick look at some settings
python -m bench.designs --rules strict
"""

from __future__ import annotations

import argparse

import numpy as np

from bench.simulation import Setting, fixed_false_better, fixed_power, fixed_seeds, judged_again, simulate
from golf.settings.composition import rules_named

# Improvement in standard deviations → rounds that find it about 80 % of the time.
ROUNDS = {1.0: 34, 2.0: 10, 3.0: 6, 4.0: 5}
OWN_MACHINES = ("two machines of its own in turn", "all but one on one machine of its own")
SHARED_MACHINES = ("two machines in opposite shares", "four machines in turn", "each run on a machine of its own")
FEW_OF_A_KIND, MANY_OF_A_KIND = "1 of 5 on the reference's machine", "4 of 5 on the reference's machine"
NOISY = (("3 times", 3.0), ("a third", 1 / 3), ("a tenth", 0.1))
SETTINGS = (
    *(Setting(f"equal, {k} variants", k, 0.0) for k in (2, 3, 6)),
    *(Setting(f"equal pairs, {k} variants", k, 0.0, pairs=True) for k in (2, 3, 6)),
    # The improvement worth finding is the true one, for which the fixed design is planned, too.
    *(Setting(f"gain {g:g} sd", 6, g, looks=n, effect_sd=g) for g, n in ROUNDS.items()),
    # What the runs of one seed share: nothing at record scale, most of the noise in short runs.
    *(
        Setting(f"gain {g:g} sd, {k} variants, r = {r:g}", k, g, looks=ROUNDS[g], effect_sd=g, shared_r=r)
        for g in (1.0, 2.0)
        for k in (2, 3, 6)
        for r in (0.0, 0.3, 0.8)
        if (k, r) != (6, 0.0)
    ),
    Setting("gain 2 sd, effect left open", 6, 2.0, looks=8),
    *(Setting(f"gain {g:g} sd, 3 variants, effect left open", 3, g) for g in (1.0, 2.0, 3.0)),
    *(Setting(f"equal, {k} variants, r = {r:g}", k, 0.0, shared_r=r) for k in (2, 3, 6) for r in (0.3, 0.8)),
    *(
        Setting(f"equal, {k} variants, r = 0.8, reference {said} as noisy", k, 0.0, sd_ratio=ratio, shared_r=0.8)
        for k in (2, 3, 6)
        for said, ratio in NOISY[:2]
    ),
    Setting("gain 2 sd, reference 3 times as noisy", 6, 2.0, looks=10, effect_sd=2.0, sd_ratio=3.0),
    *(
        Setting(f"equal, {k} variants, reference {said} as noisy", k, 0.0, sd_ratio=ratio)
        for k in (2, 3, 6)
        for said, ratio in NOISY
    ),
    *(
        Setting(f"equal, {k} variants, {layout}", k, 0.0, layout=layout)
        for k in (2, 3, 6)
        for layout in (*OWN_MACHINES, *SHARED_MACHINES)
    ),
    *(
        Setting(f"equal, {k} variants, kind by {g:g} sd, {FEW_OF_A_KIND}", k, 0.0, layout=FEW_OF_A_KIND, kind_gain_sd=g)
        for k in (2, 3, 6)
        for g in (1.0, 2.0)
    ),
    *(
        Setting(f"equal, 3 variants, reference {said} as noisy, {layout}", 3, 0.0, sd_ratio=ratio, layout=layout)
        for said, ratio in NOISY
        for layout in SHARED_MACHINES[:2]
    ),
)
# Sweeps of a fixed size.
OF_FIXED_SIZE = (
    *(
        Setting(f"{k} variants, {n} seeds, r = {r:g}", k, 0.0, looks=n, shared_r=r)
        for k in (2, 3, 6)
        for n in (2, 3, 5)
        for r in (0.0, 0.3, 0.8)
    ),
    *(
        Setting(f"{k} variants, {n} seeds, reference {said} as noisy", k, 0.0, sd_ratio=ratio, looks=n)
        for k in (2, 3, 6)
        for n in (2, 3, 5)
        for said, ratio in NOISY
    ),
)
# Sweeps of a fixed size in which the machines could pass for a difference.
ON_MACHINES = (
    *(
        Setting(f"{k} variants, {n} seeds, {layout}", k, 0.0, looks=n, layout=layout)
        for layout in (*OWN_MACHINES, *SHARED_MACHINES)
        for k, n in ((2, 3), (2, 5), (4, 5))
    ),
    *(
        Setting(f"{k} variants, 5 seeds, kind by {g:g} sd, {layout}", k, 0.0, looks=5, layout=layout, kind_gain_sd=g)
        for layout in (FEW_OF_A_KIND, MANY_OF_A_KIND)
        for k in (2, 4)
        for g in (1.0, 2.0)
    ),
    *(
        Setting(f"2 variants, {n} seeds, reference {said} as noisy, {layout}", 2, 0.0, r, looks=n, layout=layout)
        for layout in (*SHARED_MACHINES[:2], FEW_OF_A_KIND)
        for n in (3, 5)
        for said, r in NOISY
    ),
)
AGAIN = tuple(Setting(f"best of 9 equal variants again, {n} seeds", 10, 0.0, looks=n) for n in (3, 5))


def main() -> None:
    """Print a table of settings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=2000)
    parser.add_argument("--rules", default="house")
    parser.add_argument("--only", default="", help="settings whose names contain this")
    args = parser.parse_args()
    rules = rules_named(args.rules)
    print("| setting | false better | false worse | found | runs | most | fixed: runs | found |")
    print("|---|---|---|---|---|---|---|---|")
    for setting in (s for s in SETTINGS if args.only in s.name):
        rng = _rng(setting)
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
    for setting in (s for s in (*OF_FIXED_SIZE, *ON_MACHINES) if args.only in s.name):
        wrong = fixed_false_better(setting, rules, args.sweeps, _rng(setting))
        print(f"| {setting.name} | {wrong:.3f} | | | {setting.variants * setting.looks} | | | |", flush=True)
    for setting in (s for s in AGAIN if args.only in s.name):
        wrong = judged_again(setting, rules, args.sweeps, _rng(setting))
        print(f"| {setting.name} | {wrong:.3f} | | | {2 * setting.looks} | | | |", flush=True)


def _rng(setting: Setting) -> np.random.Generator:
    """Return the same draws for a setting whatever others are simulated, before and after a change of the code."""
    return np.random.default_rng([1, *setting.name.encode()])


if __name__ == "__main__":
    main()
