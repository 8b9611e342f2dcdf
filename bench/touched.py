"""Bytes that a kernel of Inductor reads and writes: of a buffer the elements that it touches, each of them once.

Inductor itself counts a slice as the whole buffer, and what a kernel writes and reads again as read. A read under a
mask, as of `torch.cat`, counts the places that it would have without. An index that is a tensor counts as often as it
is used, at most the whole buffer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy
from torch._inductor.dependencies import MemoryDep, WeakDep
from torch._inductor.utils import get_dtype_size
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import FloorDiv, ModularIndexing


@dataclass(frozen=True)
class Places:
    """Places in a buffer: `first`, and every sum of a multiple 0 … size − 1 of each stride behind it."""

    first: int
    steps: tuple[tuple[int, int], ...]  # (stride, size), the smallest stride first

    @property
    def count(self) -> int:
        return math.prod(size for _, size in self.steps)

    @property
    def end(self) -> int:
        """Return the place behind the last one."""
        return self.first + sum(stride * (size - 1) for stride, size in self.steps) + 1

    def holds(self, other: Places) -> bool:
        """Return whether these places have no gap and `other` is among them."""
        return self.end - self.first == self.count and self.first <= other.first and other.end <= self.end


def strided(first: int, steps: Iterable[tuple[int, int]]) -> Places:
    """Return the places of a strided view. Strides that overlap become one, if they have the same places."""
    merged: list[tuple[int, int]] = []
    turned = [(abs(stride), size) for stride, size in steps if stride and size > 1]
    first += sum(stride * (size - 1) for stride, size in steps if stride < 0)
    for stride, size in sorted(turned):
        below, count = merged[-1] if merged else (0, 0)
        if below and stride % below == 0 and stride <= below * count:
            merged[-1] = below, count + (size - 1) * (stride // below)
        else:
            merged.append((stride, size))
    return Places(first, tuple(merged))


def places(index: Any, ranges: Mapping[Any, int]) -> Places | None:
    """Return the places of an index over the ranges of its variables, None if they are no strided view."""
    digits = dict[Any, int]()
    parts = dict[Any, Any]()
    for variable, size in ranges.items():
        bounds = _bounds(index, variable, size)
        if bounds is None:
            return None
        named = [(sympy.Dummy(), low, high // low) for low, high in itertools.pairwise(bounds)]
        digits |= {digit: count for digit, _, count in named}
        parts[variable] = named
    index = sympy.expand(
        index.replace(
            lambda part: isinstance(part, FloorDiv | ModularIndexing),
            lambda part: _sum_of_digits(parts[part.args[0]], *map(int, part.args[1:])),
        ).subs({variable: _sum_of_digits(named, 1) for variable, named in parts.items()})
    )
    strides = {digit: index.coeff(digit) for digit in digits}
    first = index.subs(dict.fromkeys(digits, 0))
    rest = sympy.expand(index - first - sum(stride * digit for digit, stride in strides.items()))
    if rest != 0 or not all(number.is_Integer for number in (first, *strides.values())):
        return None
    return strided(int(first), [(int(strides[digit]), count) for digit, count in digits.items()])


def _bounds(index: Any, variable: Any, size: int) -> list[int] | None:
    """Return where quotients and remainders in `index` cut the digits of a variable below `size`, None if they do not.

    Each bound divides the next one, as 1, 64 and `size` for the row and the column in rows of 64.
    """
    found = {1, size}
    for part in index.atoms(FloorDiv, ModularIndexing):
        if variable not in part.free_symbols:
            continue
        if part.args[0] != variable or not all(number.is_Integer for number in part.args[1:]):
            return None
        divisor, *modulus = map(int, part.args[1:])
        found |= {min(divisor, size), min(math.prod([divisor, *modulus]), size)}
    bounds = sorted(found)
    return bounds if all(high % low == 0 for low, high in itertools.pairwise(bounds)) else None


def _sum_of_digits(named: list[tuple[Any, int, int]], divisor: int, modulus: int = 0) -> Any:
    """Return the quotient of a variable, or its remainder by `modulus`, from its digits `(name, bound, count)`."""
    top = divisor * modulus if modulus else math.inf
    return sum((low // divisor * digit for digit, low, _ in named if divisor <= low < top), sympy.Integer(0))


def count(found: Iterable[Places]) -> int:
    """Return the places of a buffer in any of `found`, at most: two that overlap and are no slice count twice."""
    largest_first = sorted(set(found), key=lambda one: -one.count)
    kept: list[Places] = []
    for one in largest_first:
        if not any(other.holds(one) for other in kept):
            kept.append(one)
    return sum(one.count for one in kept)


def views(tensors: Iterable[Any]) -> dict[str, list[Places]]:
    """Return the places that tensors of Inductor, views or buffers, have in the buffers behind them, by name."""
    found: dict[str, list[Places]] = {}
    for tensor in tensors:
        layout = tensor.maybe_get_layout() if hasattr(tensor, "maybe_get_layout") else None
        if layout is not None and hasattr(layout, "stride"):
            steps = zip(map(int, layout.stride), map(int, layout.size), strict=True)
            found.setdefault(tensor.get_name(), []).append(strided(int(layout.offset), steps))
    return found


def node_bytes(node: Any) -> tuple[int, int]:
    """Return the bytes that a node of Inductor's scheduler reads and writes."""
    parts = [part.read_writes for part in node.get_nodes()]
    within = {dep.name for part in parts for dep in part.writes}
    given = views(node.node.inputs) if node.is_extern() else {}
    # A kernel that changes a buffer comes after others that use it, which looks like a read.
    is_ordered = not node.is_extern() and any(made.get_mutations() for made in node.get_outputs())
    totals = []
    for reads in (True, False):
        # By Inductor: names without what stays within the kernel, and the most bytes of each.
        most = node.get_read_write_buffer_accesses(include_reads=reads, include_writes=not reads)
        deps = [dep for part in parts for dep in (part.reads if reads else part.writes)]
        deps = [dep for dep in deps if isinstance(dep, MemoryDep) or not (is_ordered or isinstance(dep, WeakDep))]
        names = {dep.name for dep in deps} & most.keys() - (within if reads else set())
        totals.append(sum(_bytes(name, most[name], deps, given if reads else {}) for name in names))
    return totals[0], totals[1]


def _bytes(name: str, most: int, deps: Iterable[Any], given: Mapping[str, list[Places]]) -> int:
    """Return the bytes that are touched in a buffer, at most `most`."""
    found, unknown = list(given.get(name, ())), 0
    for dep in () if found else (dep for dep in deps if dep.name == name):
        if not isinstance(dep, MemoryDep):
            return most
        one = places(dep.index, {variable: int(size) for variable, size in dep.ranges.items()})
        if one is None:
            unknown += math.prod(map(int, dep.size))
        else:
            found.append(one)
    return min(most, (count(found) + unknown) * get_dtype_size(V.graph.get_dtype(name)))
