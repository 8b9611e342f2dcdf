"""Solving for the value of one setting that fills the cap, by bisection on the predicted bytes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from golf.errors import GolfError
from golf.lab.plan.history import FinishedRun
from golf.lab.plan.machines import Machine
from golf.lab.plan.plan import Plan, make_plan
from golf.settings.composition import compose
from golf.settings.config import Config
from golf.training.services import code_bytes
from golf.words import listed

RANGE = 8.0  # ratio of the ends of the search to the present value
FLOAT_DIGITS = 4  # significant digits of a solved value that is no integer


Left = dict[str, float]  # unit of a limit → what is left, negative if it is broken


@dataclass(frozen=True)
class Limits:
    """Limits of a solved value: bytes, and on a machine its memory and a number of steps in the time."""

    machine: Machine | None = None
    min_steps: int = 0

    def left(self, plan: Plan) -> Left:
        """Return what `plan` leaves under each limit."""
        left = {"bytes under the cap": plan.headroom.low}
        if plan.gpu is not None:
            left["MiB of memory"] = plan.gpu.memory_left_mib
        if plan.steps is not None and self.min_steps:
            left["steps"] = plan.steps.expected - self.min_steps
        return left


def solve(
    overrides: Sequence[str],
    key: str,
    history: Sequence[FinishedRun],
    *,
    limits: Limits | None = None,
    multiple_of: int = 1,
) -> str:
    """Return the override of `key` with the largest file that still fits: artifact + code ≤ cap.

    Nothing is pruned, and the upper end of the prediction's interval has to fit. On a machine of `limits` memory and
    steps have to do, too. A whole number is a multiple of `multiple_of`, and a width by itself of two channels for each
    head.
    Raises `GolfError` if `key` is not a number, changes nothing that is limited, or if nothing or everything fits.
    """
    limits = limits or Limits()
    start = compose(overrides)
    # The digits of a number hardly change the script, so its bytes are measured once.
    value, code = _number(start, key), code_bytes(start)
    # Bisection runs over whole multiples of the step, which a float has by its significant digits.
    if key == "model.model_dim" and multiple_of == 1:
        # Every head has the same even width.
        multiple_of = 2 * start.model.num_heads
    step = multiple_of if isinstance(value, int) else 10.0 ** (math.floor(math.log10(value)) + 1 - FLOAT_DIGITS)

    # The same value is asked for several times, at the ends and for each limit.
    @functools.cache
    def left(i: int) -> Left:
        # Pruning would make everything fit.
        tried = _override(key, i * step)
        try:
            cfg = compose([*overrides, tried, "quant.prune.to_fit=false"])
        except GolfError as error:
            advice = "Let --multiple-of leave out values that cannot be, or solve for another setting."
            raise GolfError(f"The search tried {tried}: {error} {advice}") from error
        return limits.left(make_plan(cfg, history, code=code, machine=limits.machine))

    smallest, largest = max(1, math.ceil(value / RANGE / step)), math.floor(value * RANGE / step)
    if smallest > largest:
        raise GolfError(f"There is no multiple of {step:g} up to {value * RANGE:g}, eight times {key}: choose another.")
    multiple = _fitting(left, smallest, largest, f"{key} from {smallest * step:g} to {largest * step:g}")
    return _override(key, multiple * step)


def _fitting(left: Callable[[int], Left], low: int, high: int, described: str) -> int:
    """Return the index in `low` … `high` at the edge of what fits all limits, each of which has to be monotonic."""
    at_low, at_high = left(low), left(high)
    if all(abs(at_low[unit] - at_high[unit]) < 1 for unit in at_low):
        raise GolfError(f"{described} changes {listed(list(at_low))} by nothing: solve for a setting that does.")
    first, last = low, high
    for unit in at_low:
        if (edge := _edge(left, unit, low, high)) is None:
            missing = -max(at_low[unit], at_high[unit])
            raise GolfError(
                f"{described} fits nowhere: at best {missing:,.0f} {unit} are missing. Choose a smaller model or "
                "number format first."
            )
        # A wider model takes more of everything, a coarser format less: either end may be the one that fits.
        first, last = (first, min(last, edge)) if at_low[unit] >= 0 else (max(first, edge), last)
    if first > last:
        raise GolfError(f"{described} fits nowhere: no value keeps to {listed(list(at_low))} together.")
    if (first, last) == (low, high):
        least = listed([f"{min(at_low[unit], at_high[unit]):,.0f} {unit}" for unit in at_low])
        raise GolfError(f"{described} fits everywhere, with at least {least} left: nothing to solve.")
    return last if last < high else first


def _edge(left: Callable[[int], Left], unit: str, low: int, high: int) -> int | None:
    """Return the last index that fits the limit `unit` on the way from an end that does to the other; None if none."""
    fits, over = (low, high) if left(low)[unit] >= 0 else (high, low)
    if left(fits)[unit] < 0:
        return None
    if left(over)[unit] >= 0:
        return over
    while abs(fits - over) > 1:
        middle = (fits + over) // 2
        fits, over = (middle, over) if left(middle)[unit] >= 0 else (fits, middle)
    return fits


def _number(cfg: Config, key: str) -> int | float:
    """Return the present value of a setting. Raises `GolfError` unless it is a number above zero."""
    node: object = cfg
    for part in key.split("."):
        node = node.get(part) if isinstance(node, dict) else getattr(node, part, None)
    # Null stands for the width that mlp_mult gives.
    if key == "model.mlp_hidden" and node is None:
        node = int(cfg.model.mlp_mult * cfg.model.model_dim)
    if isinstance(node, bool) or not isinstance(node, int | float) or node <= 0:
        raise GolfError(f"{key} is {node!r} here, not a number above zero: give it a value to start from.")
    return node


def _override(key: str, value: float) -> str:
    return f"{key}={value}" if isinstance(value, int) else f"{key}={float(f'{value:.{FLOAT_DIGITS}g}'):g}"
