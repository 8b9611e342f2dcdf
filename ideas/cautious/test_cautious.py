"""Both parts against their formulas, element by element."""

from __future__ import annotations

import pytest
import torch

import golf
from ideas.cautious.cautious import along_the_gradient, decay_along_the_update


def test_elements_that_oppose_the_gradient_are_left_out() -> None:
    torch.manual_seed(0)
    update, grads = torch.randn(2, 3, 3, 5, dtype=torch.float64).unbind()
    found = along_the_gradient(update, grads, {})
    for n in range(3):
        pairs = list(zip(update[n].flatten().tolist(), grads[n].flatten().tolist(), strict=True))
        share = sum(u * g > 0 for u, g in pairs) / len(pairs)
        expected = [u / share if u * g > 0 else 0.0 for u, g in pairs]
        torch.testing.assert_close(found[n].flatten(), torch.tensor(expected, dtype=torch.float64))


def test_weights_decay_where_the_update_makes_them_smaller() -> None:
    torch.manual_seed(0)
    value, update = torch.randn(2, 4, 5, dtype=torch.float64).unbind()
    expected = [
        w - 0.1 * u - (0.1 * 0.3 * w if u * w >= 0 else 0.0)
        for w, u in zip(value.flatten().tolist(), update.flatten().tolist(), strict=True)
    ]
    value = value.clone()
    decay_along_the_update(value, update, 0.1, 0.3)
    torch.testing.assert_close(value.flatten(), torch.tensor(expected, dtype=torch.float64))


def test_settings_that_change_nothing_are_refused() -> None:
    with pytest.raises(golf.GolfError, match=r"changes nothing: set tech.cautious.update=true"):
        golf.compose(["tech=[cautious]", "tech.cautious.update=false", "optim.muon_wd=0"])
