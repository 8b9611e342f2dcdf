"""Values of ranges are those that a person would write, and everything else is split as Hydra splits it."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from golf.run.identity import variant_id
from hydra_plugins.golf_sweeper import GolfSweeper, values_of
from tests.support import compose


def parsed(*overrides: str) -> list:
    return OverridesParser.create().parse_overrides(list(overrides))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("range(0.1,0.5,0.1)", ["0.1", "0.2", "0.3", "0.4"]),
        ("range(0.01,0.05,0.01)", ["0.01", "0.02", "0.03", "0.04"]),
        ("range(0.5,0.1,-0.2)", ["0.5", "0.3"]),
        ("range(1,4)", ["1", "2", "3"]),
        ("range(4,1,-1)", ["4", "3", "2"]),
        ("range(3)", ["0", "1", "2"]),
        ("range(1.0,3.0)", ["1.0", "2.0"]),
    ],
)
def test_a_range_of_numbers(text: str, values: list[str]) -> None:
    (override,) = parsed(f"optim.matrix_lr={text}")
    assert values_of(override) == values


@given(st.integers(-50, 50), st.integers(1, 12), st.integers(1, 9), st.sampled_from([10, 100, 1000]))
def test_ranges_are_those_of_exact_arithmetic(start: int, count: int, step: int, unit: int) -> None:
    # Fractions have no rounding, so they tell which values a range has.
    exact = [Fraction(start + i * step, unit) for i in range(count)]
    stop = float(Fraction(start + count * step, unit))
    (override,) = parsed(f"optim.matrix_lr=range({float(exact[0])},{stop},{float(Fraction(step, unit))})")
    found = values_of(override)
    assert [float(value) for value in found] == [float(value) for value in exact]
    assert all(len(value) <= 6 for value in found)


@pytest.mark.parametrize("size", [None, 1, 2, 5])
def test_other_sweeps_are_split_as_hydra_does(size: int | None) -> None:
    overrides = parsed(
        "model=4l", "optim.matrix_lr=0.04,0.30000000000000004", "seed=range(1,4)", "note='a b'", "tech=[],[xsa]"
    )
    assert GolfSweeper.split_arguments(overrides, size) == BasicSweeper.split_arguments(overrides, size)


def test_a_value_of_a_range_is_the_variant_of_the_value_that_is_written() -> None:
    (override,) = parsed("optim.beta2=range(0.1,0.5,0.1)")
    ids = [variant_id(compose([f"optim.beta2={value}"])) for value in (*values_of(override), "0.3")]
    assert ids[2] == ids[4] and len(set(ids)) == 4
    # A number that somebody wrote out is left as it is: runs of it are found again.
    assert variant_id(compose(["optim.beta2=0.30000000000000004"])) not in ids
