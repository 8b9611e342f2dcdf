"""Routes as tables: the order of the published loops, and which output each visit joins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golf.errors import GolfError
from golf.training.model.route import Route, Routes, Visit, route_through
from ideas.recurrence.recurrence import omit_further_joins, repeat_last_row, repeat_layers, share_rows_by_layer
from tests.support import compose

LOOP45 = [0, 1, 2, 3, 4, 5, 4, 5, 4, 5, 6, 7, 8, 9, 10]  # records of 5 to 8 April 2026
LOOP345 = [0, 1, 2, 3, 4, 5, 3, 4, 5, 3, 4, 5, 6, 7, 8, 9, 10]  # records from 9 April 2026 on


def joins(route: Route) -> list[tuple[int, int, int, int]]:
    """(row, joining block, joined block, occurrence of the joined block) of every join."""
    found = [(v.row, v.block, *route[v.joins][:2]) for v in route if v.joins is not None]
    return [(row, block, joined, occurrence) for row, block, joined, occurrence in found]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (range(11), [(0, 5, 4, 0), (1, 6, 3, 0), (2, 7, 2, 0), (3, 8, 1, 0), (4, 9, 0, 0)]),
        (
            LOOP345,
            [
                *[(0, 5, 4, 1), (1, 3, 3, 1), (2, 4, 5, 0), (3, 5, 4, 0)],
                *[(4, 6, 3, 0), (5, 7, 2, 0), (6, 8, 1, 0), (7, 9, 0, 0)],
            ],
        ),
        (LOOP45, [(0, 5, 4, 1), (1, 4, 5, 0), (2, 5, 4, 0), (3, 6, 3, 0), (4, 7, 2, 0), (5, 8, 1, 0), (6, 9, 0, 0)]),
    ],
)
def test_joins_of_the_public_records(order: list[int], expected: list[tuple[int, int, int, int]]) -> None:
    assert joins(route_through(order)) == expected


@pytest.mark.parametrize(
    ("arguments", "order"),
    [((11, 4, 5, 3), LOOP45), ((11, 3, 5, 3), LOOP345), ((3, 0, 2, 2), [0, 1, 2] * 2), ((3, 1, 1, 1), [0, 1, 2])],
)
def test_layers_are_repeated_as_a_whole(arguments: tuple[int, int, int, int], order: list[int]) -> None:
    assert repeat_layers(*arguments) == order


@given(st.lists(st.integers(0, 5), max_size=14), st.booleans())
def test_every_output_of_the_first_half_is_joined_once_last_in_first_out(order: list[int], skips: bool) -> None:
    route = route_through(order, skips=skips)
    assert [visit.block for visit in route] == order
    assert [visit.occurrence for visit in route] == [order[:i].count(block) for i, block in enumerate(order)]
    stack: list[int] = []
    for i, visit in enumerate(route):
        assert visit.joins == (stack.pop() if skips and i >= len(order) // 2 and stack else None)
        stack += [i] * (i < len(order) // 2)
        assert visit.stores == (skips and i < len(order) // 2)
    assert Routes(route, {}).skip_rows == (len(order) // 2 if skips else 0)


def test_the_last_active_switch_with_a_route_decides() -> None:
    routes = Routes((Visit(0),), {"two": (Visit(1),), "three": (Visit(2),)})
    assert [routes.when(active)[0].block for active in ((), ("other",), ("two", "other"), ("two", "three"))] == [
        *(0, 0, 1, 2)
    ]


def test_two_techniques_cannot_both_order_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    from ideas.skip_gates.skip_gates import SkipGates

    monkeypatch.setattr(SkipGates, "routes", lambda self, cfg: Routes((), {}))
    with pytest.raises(GolfError) as refused:
        compose(["scale=laptop", "tech=[recurrence,skip_gates]", "tech.recurrence.last=1"])
    sentence = "recurrence and skip_gates each give the blocks an order of their own: drop all but one."
    assert str(refused.value) == sentence


def rows(route: Route) -> list[tuple[int, int, int]]:
    """(visit, block, row) of every join."""
    return [(i, visit.block, visit.row) for i, visit in enumerate(route) if visit.joins is not None]


def test_rows_for_the_plain_order_are_repeated_or_omitted_in_the_looped_one() -> None:
    """Records of 3 and 4 April: six joins in the looped order, five rows."""
    looped = route_through(repeat_layers(11, 4, 5, 2))
    assert [row for *_, row in rows(looped)] == [0, 1, 2, 3, 4, 5]
    assert [row for *_, row in rows(repeat_last_row(looped, 5))] == [0, 1, 2, 3, 4, 4]
    omitted = omit_further_joins(looped, 5)
    assert rows(omitted) == rows(looped)[:5]
    assert [i for i, visit in enumerate(omitted) if visit.stores] == [1, 2, 3, 4, 5]


def test_rows_by_layer_are_those_that_the_layer_had_before() -> None:
    plain = route_through(range(11))
    late = {"two": route_through(repeat_layers(11, 3, 5, 2)), "three": route_through(LOOP345)}
    found = share_rows_by_layer(plain, late)
    of_layer = {block: row for _, block, row in rows(plain)}
    for name in late:
        last = {visit.block: i for i, visit in enumerate(found[name])}
        for i, block, row in rows(found[name]):
            was_there = i == last[block] and block in of_layer
            assert row == of_layer[block] if was_there else row >= len(of_layer)
        assert len({row for *_, row in rows(found[name])}) == len(rows(late[name]))
    assert Routes(plain, found).skip_rows == 9 and Routes(plain, found, late_rows_apart=True).early_rows == 5
