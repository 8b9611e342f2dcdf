"""Bytes of a kernel's slices, against every place one by one and against small functions that are counted by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from torch import Tensor
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from bench.step_costs import Costs
from bench.touched import count, places, strided

a, b, c = sympy.symbols("a b c", integer=True, nonnegative=True)


@pytest.mark.parametrize(
    ("index", "ranges"),
    [
        (8 * a + b, {a: 4, b: 8}),  # a buffer
        (24 * a + b + 8, {a: 4, b: 8}),  # the second third of its columns
        (a + 4 * b, {a: 4, b: 8}),  # turned
        (3 * a + 24 * b, {a: 8, b: 4}),  # every third column
        (7 - a, {a: 8}),  # backwards
        (a + b, {a: 4, b: 5}),  # windows
        (24 * FloorDiv(a, 8) + ModularIndexing(a, 1, 8), {a: 32}),  # a slice, by one variable
        (100 * ModularIndexing(a, 8, 2) + 7 * FloorDiv(a, 16), {a: 64}),
        (16 * a + ModularIndexing(b, 4, 4) + 64 * c, {a: 4, b: 16, c: 3}),
        (FloorDiv(a, 100), {a: 32}),  # the first place
        (sympy.Integer(5), {a: 3}),
    ],
)
def test_places_of_an_index_are_those_found_one_by_one(index: Any, ranges: dict[Any, int]) -> None:
    values = itertools.product(*(range(size) for size in ranges.values()))
    found = {int(index.subs(dict(zip(ranges, value, strict=True)))) for value in values}
    touched = places(index, ranges)
    assert touched is not None
    assert (touched.count, touched.first, touched.end) == (len(found), min(found), max(found) + 1)


def test_an_index_that_is_no_strided_view_is_not_counted() -> None:
    looked_up = sympy.Symbol("looked_up")
    for index in (8 * looked_up + b, ModularIndexing(b, 1, 6), FloorDiv(3 * a + b, 2), a * b):
        assert places(index, {a: 4, b: 8}) is None


def test_places_of_several_reads_are_counted_once() -> None:
    rows = [strided(0, [(24, 4), (1, 8)]), strided(8, [(24, 4), (1, 8)])]
    assert count(rows) == 64 and count([*rows, rows[0]]) == 64
    # A slice of what another read has whole.
    assert count([*rows, strided(0, [(1, 96)])]) == 96


X, COLUMN = 64 * 96 * 4, 64 * 4  # bytes


def total_and_double(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    total = x + y
    return total, total * 2


def chunks(x: Tensor) -> Tensor:
    first, second, _ = x.chunk(3, 1)
    return first * second


def parts(x: Tensor) -> Tensor:
    first, _, third = x.split([16, 16, 64], 1)
    return third.relu() + first.sum()


BY_HAND: dict[str, tuple[Callable[..., Any], int, int, int]] = {
    # function of `x` and as many others of its shape, bytes read, bytes written
    "whole": (lambda x: x * 2, 0, X, X),
    "slice": (lambda x: x[:, :32] * 2, 0, X // 3, X // 3),
    "chunks": (chunks, 0, X * 2 // 3, X // 3),
    "split": (parts, 0, X // 6 + X * 2 // 3 + 4, X * 2 // 3 + 4),
    "every other row": (lambda x: x[::2] + 1, 0, X // 2, X // 2),
    "every other column": (lambda x: x[:, ::2] + 1, 0, X // 2, X // 2),
    "turned": (lambda x: x.t().contiguous() + 1, 0, X, X),
    "in place": (lambda x: x.add_(1), 0, X, X),
    "slice in place": (lambda x: x[:, 32:64].mul_(2), 0, X // 3, X // 3),
    "slice written": (lambda x: x[:, 32:64].fill_(1), 0, 0, X // 3),
    "rows": (lambda x: x.sum(1), 0, X, COLUMN),
    "sum of a slice": (lambda x: x[:, 32:64].sum(1), 0, X // 3, COLUMN),
    "shift": (lambda x: x[1:] - x[:-1], 0, X, X * 63 // 64),
    "row of gains": (lambda x, y: x * y[0], 1, X + X // 64, X),
    "what it writes is not read": (total_and_double, 1, 2 * X, 2 * X),
    "product of a slice": (lambda x, y: x[:, :32] @ y[:32], 1, X // 3 + X // 2, X),
    "looked up": (lambda x: x[torch.arange(32) * 2], 0, X // 2, X // 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_HAND)
def test_bytes_of_compiled_functions_are_those_counted_by_hand(name: str) -> None:
    function, others, read, written = BY_HAND[name]
    for _ in range(2):  # what the first time leaves in a cache is not taken out of it
        torch._dynamo.reset()
        costs = Costs()
        costs.compile(function)(*(torch.ones(64, 96) for _ in range(1 + others)))
        assert (sum(k.read for k in costs.kernels), sum(k.written for k in costs.kernels)) == (read, written)
