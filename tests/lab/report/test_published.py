"""The noise of a published score enters the test, and what it changes is what an independent formula says."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from golf.errors import GolfError
from golf.lab.report.comparison import PublishedNoise, published_noise
from golf.lab.report.statistics import luck_of_the_best, one_sample

SCORES = [1.2226, 1.2239, 1.2231, 1.2244]


def test_a_mean_of_runs_that_scatter_alike_is_students_test() -> None:
    found = PublishedNoise(3).added_to(one_sample(SCORES, 1.2244), 4)
    assert found.df == 3 and found.standard_error == pytest.approx(np.std(SCORES, ddof=1) * np.sqrt(1 / 4 + 1 / 3))


def test_a_given_sd_is_welch_against_a_very_large_sample_of_it() -> None:
    found = PublishedNoise(3, 0.0009).added_to(one_sample(SCORES, 1.2244), 4)
    # A sample of 3 million with an sd of 0.9 has the standard error of 3 runs with 0.0009.
    large = stats.ttest_ind_from_stats(
        np.mean(SCORES), np.std(SCORES, ddof=1), 4, 1.2244, 0.9, 3_000_000, equal_var=False, alternative="less"
    )
    assert found.p_below() == pytest.approx(float(large.pvalue), rel=1e-4)


def test_false_better_is_what_the_rule_says_only_with_the_noise() -> None:
    rng, exact, noisy = np.random.default_rng(5), 0, 0
    for _ in range(2000):
        found = one_sample(
            (1.2 + 0.0007 * rng.standard_normal(3)).tolist(), 1.2 + 0.0007 * rng.standard_normal() / 3**0.5
        )
        exact += found.p_below() < 0.05
        noisy += PublishedNoise(3).added_to(found, 3).p_below() < 0.05
    assert noisy / 2000 < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 2000) < exact / 2000


def test_the_luck_of_the_best_is_that_of_equal_means() -> None:
    rng = np.random.default_rng(7)
    for count in (3, 5, 16):
        drawn = 0.0007 * rng.standard_normal((20_000, count)) / np.sqrt(3)
        assert luck_of_the_best(count, 0.0007, 3) == pytest.approx(-drawn.min(axis=1).mean(), rel=0.02)


def test_noise_without_a_score_is_refused() -> None:
    assert published_noise(None, None, None) is None
    for given, says in [
        ((None, 3, None), "give it with --against"),
        ((1.2, 0, None), "1 or more"),
    ]:
        with pytest.raises(GolfError, match=says):
            published_noise(*given)
