"""Routes: the order in which a forward pass visits the blocks, and which outputs it joins again as U-net skips.

A route is a plain tuple, computed from the configuration before a model exists. Skip weights, parameters of a pass,
techniques and the planner's operations read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Visit(NamedTuple):
    """One use of a block in a forward pass."""

    block: int  # index of the block
    occurrence: int = 0  # earlier visits to the same block in this pass
    joins: int | None = None  # index of the visit whose output is joined before the block; None = no skip
    row: int = 0  # row of the skip weights for that join
    stores: bool = False  # True if a later visit joins the output of this one
    controls: int | None = None  # index of the control vectors, norms and hooks that it uses; None = the block's own


Route = tuple[Visit, ...]


class Routes(NamedTuple):
    """The routes of a model: one without late switches, and one for each switch that changes the order."""

    plain: Route
    late: Mapping[str, Route]
    late_rows_apart: bool = False  # True: rows that only late routes use are parameters of their own
    control_sets: int = 0  # sets of control vectors beyond the blocks' own, for visits of late routes

    def when(self, active: Sequence[str]) -> Route:
        """Return the route while the switches `active` are on: that of the last one with a route of its own."""
        # A later switch goes on after the earlier ones and replaces their order.
        return next((self.late[name] for name in reversed(active) if name in self.late), self.plain)

    @property
    def early_rows(self) -> int:
        """Return the number of rows in the plain route's parameter. Further rows have a parameter of their own."""
        return count_rows(self.plain) if self.late_rows_apart else self.skip_rows

    @property
    def skip_rows(self) -> int:
        """Return the number of rows of skip weights that cover the joins of every route."""
        return max(map(count_rows, (self.plain, *self.late.values())))


def count_rows(route: Route) -> int:
    """Return the number of rows of skip weights that cover the joins of `route`."""
    return max((visit.row + 1 for visit in route if visit.joins is not None), default=0)


def route_through(order: Sequence[int], *, skips: bool = True) -> Route:
    """Return the route that visits the blocks of `order`; with `skips` its halves are joined last in, first out.

    The first half stores its outputs, and the i-th visit of the second half joins the last one that is left, weighted
    by row i. The second half is the longer one if their number is odd; its last visit then joins nothing.
    """
    half = len(order) // 2
    visits = []
    for i, block in enumerate(order):
        joins = 2 * half - 1 - i if skips and half <= i < 2 * half else None
        row = 0 if joins is None else i - half
        visits.append(Visit(block, list(order[:i]).count(block), joins, row, skips and i < half))
    return tuple(visits)
