"""Documents come by their length."""

from __future__ import annotations

import numpy as np
import pytest

import golf
from golf.training.data.orders import Units

DOCUMENTS = ["data.loader=packed_shuffled", "model.within_documents=true", "eval.documents=true"]


@pytest.mark.parametrize("longest_first", [False, True])
def test_lengths_ascend_and_ties_are_shuffled(longest_first: bool) -> None:
    chosen = ["model=4l", "scale=laptop", *DOCUMENTS, "tech=[by_length]"]
    cfg = golf.compose([*chosen, f"tech.by_length.longest_first={longest_first}"])
    lengths = np.random.default_rng(0).integers(1, 6, 200)
    order = cfg.tech["by_length"].data_order(cfg)
    found = [order(Units(number, (1, 0), lengths, lambda _: np.zeros(1))) for number in (0, 1)]
    for places in found:
        assert sorted(places.tolist()) == list(range(200))
        assert lengths[places].tolist() == sorted(lengths.tolist(), reverse=longest_first)
    assert found[0].tolist() != found[1].tolist()
