"""Depth recurrence: a stretch of layers is run several times, from the start or from a point of the run on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from golf.errors import GolfError
from golf.registry import Variable
from golf.run.progress import Progress
from golf.settings.config import Config, techniques
from golf.settings.fields import later, number, one_of
from golf.training.model.gpt import GPT, plain_route
from golf.training.model.route import Route, Routes, count_rows, route_through
from golf.training.techniques.base import Technique, technique

FULL = "recurrence_full"  # second switch of a start in two phases


def _stretch(layers: str) -> dict[str, Any]:
    numbers = [int(layer) for layer in layers.split(",")]
    return {"first": min(numbers), "last": max(numbers)}


def _second_phase(fraction: str) -> dict[str, Any]:
    return {"full_at": fraction} if float(fraction) > 0 else {}


@technique("recurrence")
@dataclass
class Recurrence(Technique):
    """Layers `first` … `last` run `passes` times: 0, 1, (2, 3), (2, 3), 4, …, split in half for the U-net skips.

    `passes` counts all of them, NUM_LOOPS of the public scripts the additional ones. With `full_at`, two passes run
    from the start of the loop and all of them from there on (record 04-06).

    `skip_rows` says which rows of skip weights the looped order uses. `looped` counts its own joins, so that a row acts
    before other layers than before the loop was on (records from 04-05 on, and 03-31). `repeated` and `omitted` have as
    many rows as the plain order has joins. Further joins use the last row (04-03) or are left out (04-04). `by_layer`
    gives joins before the last visit of a layer the row that the layer had in the plain order, and adds rows for the
    others. Rows that only the looped order uses decay until then, as published; `late_decay=false` leaves them at 1.

    `controls=by_layer` gives all visits of a layer its gains, mixes, norm factors and own-value exclusion (records from
    04-03 on). `by_visit` numbers the visits of the looped order and gives each its own (record 03-31), so that those of
    later layers move to other layers when the loop starts, layers are scaled by the visit's number, and the last layers
    of `xsa` are the last visits. The matrices are shared either way.
    """

    source = "record 2026-04-05_SP8192_GPTQ-Embeddings_SDClip_Loop45x2; whole stack 2026-03-19_SlidingWindowEval"
    variables = (
        Variable("ENABLE_LOOPING_AT", "enable_at", selects=True),
        Variable("RECUR_LAYERS", _stretch, selects=True),
        Variable("RECUR_START_STEP", "enable_at_step"),
        Variable("LOOP_START", "first"),
        Variable("LOOP_END", "last"),
        # The scripts count additional passes.
        Variable("NUM_LOOPS", lambda value: {"passes": int(value) + 1}),
        Variable("LOOP_PHASE2_AT", _second_phase),
    )
    groups = (("late_skip_weights", "scalar"), ("late_controls.*", "scalar"))
    is_switch = True
    scored_with = True

    first: int = 0
    last: int | None = None  # null = the last layer
    passes: int = number(2, at_least=2, at_most=100)
    enable_at: float = number(0.0, at_least=0, below=1)  # fraction of the run
    enable_at_step: int | None = later(number(None, at_least=0))  # step from which it is on, in place of enable_at
    full_at: float | None = later(number(None, above=0, below=1))  # fraction from which all passes run; null = at once
    skip_rows: str = later(one_of("looped", "repeated", "omitted", "by_layer"))  # rows of the looped order's skips
    late_decay: bool = later(True)  # False: skip rows do not decay before they are used
    # what gains, mixes, norm factors and XSA belong to; by_layer: a layer | by_visit: each visit of the looped order
    controls: str = later(one_of("by_layer", "by_visit"))

    def check(self, cfg: Config) -> None:
        last = cfg.model.num_layers - 1 if self.last is None else self.last
        if not 0 <= self.first <= last < cfg.model.num_layers:
            raise GolfError(
                f"tech.recurrence runs layers {self.first} to {last}, but there are 0 to {cfg.model.num_layers - 1}."
            )
        if self.enable_at_step is not None and self.enable_at > 0:
            raise GolfError("tech.recurrence starts at enable_at_step or at the fraction enable_at: give one of them.")
        if self.full_at is not None and (self.passes < 3 or self.full_at <= self.enable_at):
            raise GolfError(
                "tech.recurrence.full_at adds the passes beyond two later: it needs at least 3 passes and a fraction "
                f"after enable_at={self.enable_at}."
            )
        if self.skip_rows != "looped" and not (cfg.model.unet_skips and cfg.model.num_layers > 1):
            raise GolfError(f"tech.recurrence.skip_rows={self.skip_rows} needs U-net skips: set skip_rows=looped.")
        if not self.late_decay and (routes := self.routes(cfg)).early_rows == routes.skip_rows:
            raise GolfError("tech.recurrence.late_decay=false has no late rows of skips to keep: leave it true.")
        if self.controls == "by_visit" and (rivals := [other.name for other in techniques(cfg) if other.by_layer]):
            raise GolfError(
                f"tech.recurrence.controls=by_visit has no parameters of {rivals[0]} for the further visits: use "
                f"controls=by_layer or drop {rivals[0]}."
            )

    def routes(self, cfg: Config) -> Routes:
        plain, skips = plain_route(cfg.model), cfg.model.unet_skips
        late = {name: route_through(self._order(cfg, passes), skips=skips) for name, passes in self._phases().items()}
        if self.skip_rows == "by_layer":
            late = share_rows_by_layer(plain, late)
        late = {name: self._fitted(route, plain) for name, route in late.items()}
        if self.controls == "by_visit":
            late = {name: control_by_place(route) for name, route in late.items()}
            beyond = max(map(len, late.values())) - len(plain)
            return Routes(plain, late, not self.late_decay, beyond)
        return Routes(plain, late, not self.late_decay)

    def _phases(self) -> dict[str, int]:
        return {self.name: self.passes} if self.full_at is None else {self.name: 2, FULL: self.passes}

    def _order(self, cfg: Config, passes: int) -> list[int]:
        layers = cfg.model.num_layers
        return repeat_layers(layers, self.first, layers - 1 if self.last is None else self.last, passes)

    def _fitted(self, route: Route, plain: Route) -> Route:
        if self.skip_rows == "repeated":
            return repeat_last_row(route, count_rows(plain))
        return omit_further_joins(route, count_rows(plain)) if self.skip_rows == "omitted" else route

    def edit_model(self, model: GPT, cfg: Config) -> None:
        # Scores are taken of the model as it is at the end, when all passes run.
        model.active_in_scoring += self.switch_names()

    def switch_names(self) -> tuple[str, ...]:
        return tuple(self._phases())

    def names_on(self, progress: Progress) -> tuple[str, ...]:
        if self.enable_at_step is None:
            begun = progress.fraction >= self.enable_at
        else:
            begun = progress.step >= self.enable_at_step
        if self.full_at is None or progress.fraction >= self.full_at:
            return self.switch_names() if begun else ()
        return self.switch_names()[:1] if begun else ()


def repeat_layers(num_layers: int, first: int, last: int, passes: int) -> list[int]:
    """Return the blocks 0 … `num_layers` - 1 in order, with `first` … `last` as a whole `passes` times."""
    order = list(range(num_layers))
    return order[:first] + order[first : last + 1] * passes + order[last + 1 :]


def repeat_last_row(route: Route, rows: int) -> Route:
    """Return `route` with joins beyond the first `rows` weighted by the last of these rows."""
    return tuple(visit._replace(row=min(visit.row, rows - 1)) for visit in route)


def omit_further_joins(route: Route, rows: int) -> Route:
    """Return `route` without the joins beyond the first `rows`, and without storing what they would join."""
    gone = {visit.joins for visit in route if visit.joins is not None and visit.row >= rows}
    return tuple(
        visit._replace(joins=None, row=0)
        if visit.joins in gone
        else visit._replace(stores=visit.stores and i not in gone)
        for i, visit in enumerate(route)
    )


def control_by_place(route: Route) -> Route:
    """Return `route` with control vectors of its own for every visit, in order."""
    return tuple(visit._replace(controls=place) for place, visit in enumerate(route))


def share_rows_by_layer(plain: Route, late: Mapping[str, Route]) -> dict[str, Route]:
    """Return `late` with equal rows for equal joining blocks, counted from their last visit back.

    The rows of `plain` keep their places. Those of joins that it does not have follow behind them.
    """
    rows: dict[tuple[int, int], int] = {}

    def with_rows(route: Route) -> Route:
        found = []
        for i, visit in enumerate(route):
            if visit.joins is not None:
                # Counted from the back, because the only visit of the plain order is like the last one of a loop.
                visits_left = sum(other.block == visit.block for other in route[i + 1 :])
                visit = visit._replace(row=rows.setdefault((visit.block, visits_left), len(rows)))
            found.append(visit)
        return tuple(found)

    # First the plain route, so that its rows keep their numbers.
    with_rows(plain)
    return {name: with_rows(route) for name, route in late.items()}
