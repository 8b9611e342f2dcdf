"""Frequencies by hand, and attention that follows them."""

import math

import pytest
import torch

from ideas.yarn.yarn import Yarn, YarnRotary
from tests.training.techniques.small import small_model


def test_frequencies_of_the_record() -> None:
    found = YarnRotary(96, 5000.0, factor=2.0).frequencies(1024, torch.device("cpu")).tolist()
    assert len(found) == 48
    for j, frequency in enumerate(found):
        ramp = min(max((2 * j / 96 - 0.25) / 0.75, 0.0), 1.0)
        assert frequency == pytest.approx(5000 ** (-2 * j / 96) / (ramp * (2048 / 1024 - 1) + 1), rel=1e-6)
    assert found[:13] == pytest.approx([5000 ** (-2 * j / 96) for j in range(13)], rel=1e-6)


def test_tables_turn_by_the_frequencies() -> None:
    model = small_model(Yarn(factor=4.0), layers=2)
    cos, sin = model.rotary.tables(7, like=torch.zeros(1))
    # A head of four channels has two pairs; the second one's ramp is a third.
    slow = 10_000**-0.5 / (1 + 3 / 3)
    assert cos[0, 5, 0].tolist() == pytest.approx([math.cos(5), math.cos(5 * slow)], abs=1e-6)
    assert sin[0, 5, 0].tolist() == pytest.approx([math.sin(5), math.sin(5 * slow)], abs=1e-6)
