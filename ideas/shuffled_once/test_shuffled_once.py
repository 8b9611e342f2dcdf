"""The order of every pass is one."""

from __future__ import annotations

import numpy as np

import golf
from golf.training.data.orders import Units


def test_passes_have_one_order() -> None:
    cfg = golf.compose(["model=4l", "scale=laptop", "data.loader=shuffled", "tech=[shuffled_once]"])
    order = cfg.tech["shuffled_once"].data_order(cfg)
    passes = [Units(number, (5,), np.full(50, 8), lambda _: np.zeros(8)) for number in range(3)]
    first, *others = [order(units).tolist() for units in passes]
    assert sorted(first) == list(range(50)) != first and others == [first, first]
    assert order(Units(0, (6,), np.full(50, 8), lambda _: np.zeros(8))).tolist() != first
