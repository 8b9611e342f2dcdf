"""Simulate seasons of 100 candidates against shared runs of one reference: what is false of all that is called better.

python -m bench.seasons                      # every setting, 500 seasons each: a minute
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np

from golf.lab.report.season import EXPONENT, SUM_OF_SHARES, discoveries
from golf.lab.report.statistics import welch

LEVEL, CANDIDATES, TRUE_SHARE, CANDIDATE_P = 0.05, 100, 0.2, 0.5
# Improvement of those that are better in standard deviations, seeds of a candidate, seeds of the reference.
SETTINGS = ((0.0, 5, 5), (2.0, 5, 5), (4.0, 3, 3), (4.0, 5, 5), (2.0, 10, 10))
Rule = Callable[[Sequence[float]], list[bool]]


def spent_once(p_values: Sequence[float]) -> list[bool]:
    """Spend the level over the stream, whatever is found."""
    return [p <= LEVEL * at**-EXPONENT / SUM_OF_SHARES for at, p in enumerate(p_values, start=1)]


def saffron(p_values: Sequence[float]) -> list[bool]:
    """Spend none of the level on tests with a p above a half (Ramdas, Zrnic, Wainwright and Jordan 2018)."""
    found: list[int] = []
    candidates = np.array([p <= CANDIDATE_P for p in p_values])
    for at, p in enumerate(p_values):
        starts = [-1, *found]
        # Tests since the start or a discovery that were no candidates.
        spent = [(at - start - int(candidates[start + 1 : at].sum())) ** -EXPONENT for start in starts]
        parts = [LEVEL / 2, *((1 - CANDIDATE_P) * LEVEL - (LEVEL / 2 if n == 0 else 0) for n in range(len(found)))]
        if p <= min(CANDIDATE_P, float(np.dot(parts, spent)) / SUM_OF_SHARES):
            found.append(at)
    return [at in found for at in range(len(p_values))]


RULES: dict[str, Rule] = {
    "each table alone": lambda p_values: [p < LEVEL for p in p_values],
    "spent once": spent_once,
    "LORD++": lambda p_values: discoveries(p_values, LEVEL),
    "SAFFRON": saffron,
}


def season(gain: float, seeds: int, of_reference: int, rng: np.random.Generator) -> tuple[np.ndarray, list[float]]:
    """Return which candidates are better, and the p of each in its own table, by Welch's test."""
    is_better = rng.random(CANDIDATES) < (TRUE_SHARE if gain else 0.0)
    reference = rng.standard_normal(of_reference)
    scores = rng.standard_normal((CANDIDATES, seeds)) - gain * is_better[:, None]
    return is_better, [welch(own.tolist(), reference.tolist()).p_below() for own in scores]


def main() -> None:
    """Print the false discovery rate and the share of what is better that was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seasons", type=int, default=500)
    count = parser.parse_args().seasons
    print("| gain, seeds, seeds of the reference | rule | false of what is called better | found |\n|---|---|---|---|")
    for setting in SETTINGS:
        rng = np.random.default_rng(1)
        drawn = [season(*setting, rng) for _ in range(count)]
        for name, rule in RULES.items():
            shares = []
            for is_better, p_values in drawn:
                found = np.array(rule(p_values))
                shares.append(
                    (
                        (found & ~is_better).sum() / max(1, found.sum()),
                        found[is_better].mean() if is_better.any() else 0,
                    )
                )
            false, power = np.mean(shares, axis=0)
            print(f"| {setting[0]:g} sd, {setting[1]}, {setting[2]} | {name} | {false:.3f} | {power:.2f} |", flush=True)


if __name__ == "__main__":
    main()
