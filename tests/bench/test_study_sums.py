"""Golf's mixtures sum to one at every position, and two public constructions at next to none."""

import pytest

from bench.study_sums import SHARES, sums_of


@pytest.mark.slow
def test_only_mixtures_of_distributions_sum_to_one() -> None:
    found = sums_of("the cat sat on the mat, and the hat was that of a bat. " * 8, 290)
    assert len(found) == 1 + 4 * len(SHARES)
    for name, sums in found.items():
        is_public = name.startswith(("plain byte mixture", "marginal repair"))
        near = [abs(total - 1) < (1e-3 if is_public else 1e-6) for total in sums]
        assert len(sums) > 20 and (sum(near) < len(near) / 10 if is_public else all(near)), name
