"""Simulate searches by keeps: how much they gain, what they claim, how many keeps do nothing, and what a confirmation
says of them.

Scores are drawn, not trained. They go through the code of `golf keep`: its campaign, its decisions and its seeds.

python -m bench.keeps                        # every setting, 100 searches each: half an hour
python -m bench.keeps --searches 50 --only "A/A"
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from golf.lab.report.findings import judged
from golf.lab.report.keeping import KEEP, STANDS, Decision, decide, standing
from golf.lab.report.rows import RunRow
from golf.lab.report.sequential import SequentialPlan
from golf.lab.report.study import Study
from golf.lab.report.variants import Variant
from golf.lab.sweep.campaign import SEED_OF_SEARCH, Campaign, Try
from golf.settings.composition import rules_named

MEAN, SD = 1.1, 0.0007
ROUNDS = 10
RULES = rules_named("house")
GREEDY, SEEDS_ANEW, IN_ROUNDS = "one seed", "one seed, another after each keep", "in rounds"
Effect = Callable[[np.random.Generator], float]


def proposals(gains: float, nothing: float, mean_gain: float) -> Effect:
    """Return a drawer of effects in sd: shares of `gains` and of `nothing`; the rest harms by 2 on average."""

    def effect(rng: np.random.Generator) -> float:
        share = rng.random()
        if share < gains:
            return -float(rng.exponential(mean_gain))
        return 0.0 if share < gains + nothing else float(rng.exponential(2.0))

    return effect


PROPOSALS = {
    "A/A": lambda rng: 0.0,
    "few large gains": proposals(0.10, 0.30, 1.5),
    "small gains": proposals(0.15, 0.30, 0.7),
}


@dataclass
class Search:
    """A campaign on drawn scores. Effects add up; the runs of a seed share a part of their noise."""

    rng: np.random.Generator
    shared_r: float
    campaign: Campaign = field(default_factory=lambda: Campaign("simulated", [], []))
    effects: dict[str, float] = field(default_factory=dict)  # override → sd
    scores: dict[tuple[str, int], float] = field(default_factory=dict)  # the runs that were made
    of_seed: dict[int, float] = field(default_factory=dict)

    def run(self, bundles: Sequence[Sequence[str]], seeds: Sequence[int]) -> Variant:
        """Return a variant with a run for each seed; runs that are there are not made again."""
        overrides = self.campaign.together(bundles)
        id = " ".join(sorted(overrides))
        for seed in seeds:
            if (id, seed) not in self.scores:
                shared = self.of_seed.setdefault(seed, float(self.rng.standard_normal()))
                own = float(self.rng.standard_normal())
                noise = np.sqrt(self.shared_r) * shared + np.sqrt(1 - self.shared_r) * own
                self.scores[id, seed] = MEAN + SD * (self.gain(overrides) + float(noise))
        return Variant(id, id, tuple(self.row(id, seed) for seed in seeds))

    def row(self, id: str, seed: int) -> RunRow:
        """Return the row of a run."""
        return RunRow(id, id, seed, val_bpb=self.scores[id, seed], bytes_per_token=2.4, how="standard", data="text")

    def gain(self, overrides: Sequence[str]) -> float:
        """Return the true effect of overrides in sd."""
        return sum(self.effects[override] for override in overrides)

    def propose(self, effect: float) -> list[str]:
        """Return the overrides of a new candidate."""
        override = f"a{len(self.effects)}=1"
        self.effects[override] = effect
        return [override]

    def try_one(self, candidate: list[str], seeds: Sequence[int], in_rounds: bool) -> Decision:
        """Try a candidate and record the decision. Runs of rounds that were not needed are not made."""
        chain = self.campaign.chain
        before = set(self.scores)
        incumbent, variant = (self.run(bundles, seeds) for bundles in (chain, [*chain, candidate]))
        plan = SequentialPlan(tuple(seeds), incumbent.id) if in_rounds else None
        findings = judged(Study("a try", (incumbent, variant), incumbent, plan=plan), RULES)
        for key in set(self.scores) - before:
            if findings.looks is not None and key[1] not in seeds[: findings.looks]:
                del self.scores[key]
        done = decide(findings, variant.id)
        self.campaign.tries.append(Try(candidate, done.decision, incumbent.id, variant.id, in_rounds))
        return done

    def confirm(self) -> tuple[list[bool], int, float]:
        """Return which keeps stand, how many runs that took, and the gain of the chain that it measures, in sd."""
        chain, seeds = self.campaign.chain, self.campaign.fresh_seeds(ROUNDS)
        whole, start = self.run(chain, seeds), self.run([], seeds)
        arms = [self.run([*chain[:at], *chain[at + 1 :]], seeds) for at in range(len(chain))]
        # With one keep the start is what is left without it.
        distinct = {v.id: v for v in (whole, *arms, start)}
        plan = SequentialPlan(tuple(seeds), whole.id, asks_worse=True)
        findings = judged(Study("a confirmation", tuple(distinct.values()), whole, plan=plan), RULES)
        looks = [_looks(findings.verdicts[id].reason) for id in distinct if id != whole.id]
        claimed = -(standing(findings, start.id).difference_bpb or 0.0) / SD
        return [standing(findings, v.id).decision == STANDS for v in arms], sum(looks) + max(looks), claimed


def _looks(reason: str) -> int:
    return int(reason.split("look ")[1].split()[0])


def search(budget: int, effect: Effect, design: str, shared_r: float, rng: np.random.Generator) -> list[float]:
    """Return numbers of one search: keeps, those without a gain, gain claimed and true in sd, and of a confirmation
    runs, standing keeps, those of them without a gain, keeps with a gain of 1 sd and how many of these stand, gain."""
    loop = Search(rng, shared_r)
    claimed = 0.0
    while len(loop.scores) < budget:
        candidate, in_rounds = loop.propose(effect(rng)), design == IN_ROUNDS
        seeds = [SEED_OF_SEARCH] if design == GREEDY else loop.campaign.seeds(ROUNDS if in_rounds else 1)
        done = loop.try_one(candidate, seeds, in_rounds)
        claimed -= (done.difference_bpb or 0.0) / SD if done.decision == KEEP else 0.0
    gains = [-loop.gain(bundle) for bundle in loop.campaign.chain]
    stands, runs, measured = loop.confirm() if gains else ([], 0, 0.0)
    true = [gain for gain, is_standing in zip(gains, stands, strict=True) if is_standing]
    return [
        *(len(gains), sum(g <= 0 for g in gains), claimed, sum(gains)),
        *(runs, len(true), sum(g <= 0 for g in true), sum(g >= 1 for g in gains), sum(g >= 1 for g in true), measured),
    ]


def main() -> None:
    """Print a table of settings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=100)
    parser.add_argument("--only", default="", help="settings whose names contain this")
    args = parser.parse_args()
    print(
        "| proposals, runs, r | design | keeps | no gain | claimed, sd | true, sd | confirmation: runs | measures, sd "
        "| stand | of them no gain | of gains of 1 sd |\n|---|---|---|---|---|---|---|---|---|---|---|"
    )
    for name, effect in PROPOSALS.items():
        for budget in (125, 400) if name != "A/A" else (125,):
            for r in (0.0, 0.8):
                for design in (GREEDY, SEEDS_ANEW, IN_ROUNDS):
                    if args.only not in (label := f"{name}, {budget}, {r:g}") and args.only not in design:
                        continue
                    # The same draws for a setting whatever others are simulated.
                    rng = np.random.default_rng([*label.encode(), *design.encode()])
                    drawn = [search(budget, effect, design, r, rng) for _ in range(args.searches)]
                    k, bad, claimed, true, runs, stand, wrong, large, found, measured = np.mean(drawn, axis=0)
                    print(
                        f"| {label} | {design} | {k:.1f} | {bad:.1f} ({bad / max(k, 1e-9):.0%}) | {claimed:.1f} | "
                        f"{true:.1f} | {runs:.0f} | {measured:.1f} | {stand:.1f} | {wrong:.2f} "
                        f"| {found / max(large, 1e-9):.0%} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
