"""The season: of all that is called better against one reference, few are false."""

from __future__ import annotations

import numpy as np
import pytest

from bench.seasons import season
from golf.lab.report.season import EXPONENT, SUM_OF_SHARES, discoveries

LEVEL = 0.05


def test_the_level_is_spent_and_earned_back() -> None:
    shares = [j**-EXPONENT / SUM_OF_SHARES for j in range(1, 7)]
    assert sum(j**-EXPONENT for j in range(1, 200_000)) == pytest.approx(SUM_OF_SHARES, abs=2e-3)
    first, second = LEVEL / 2 * shares[0], LEVEL / 2 * shares[1]
    assert discoveries([first, 1.0], LEVEL) == [True, False] and discoveries([first * 1.01, second], LEVEL) == [
        False,
        True,
    ]
    # The first discovery earns half of the level, each further one all of it.
    third = LEVEL / 2 * (shares[2] + shares[1]) + LEVEL * shares[0]
    assert discoveries([0.0, 0.0, third * 0.999], LEVEL)[2] and not discoveries([0.0, 0.0, third * 1.001], LEVEL)[2]
    assert discoveries([], LEVEL) == []


def test_few_of_what_a_season_calls_better_are_false() -> None:
    """A hundred candidates, a fifth of which are better by 4 sd, by runs that share five of the reference."""
    rng, false, alone, found = np.random.default_rng(2), [], [], []
    for _ in range(60):
        is_better, p_values = season(4.0, 5, 5, rng)
        called, each = np.array(discoveries(p_values, LEVEL)), np.array(p_values) < LEVEL
        false.append((called & ~is_better).sum() / max(1, called.sum()))
        alone.append((each & ~is_better).sum() / max(1, each.sum()))
        found.append(called[is_better].mean())
    assert np.mean(false) < LEVEL + 0.02 < np.mean(alone) and np.mean(found) > 0.7
