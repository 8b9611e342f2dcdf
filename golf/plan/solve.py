"""Solving for the value of one setting that fills the cap, by bisection on the predicted bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from golf.artifact.script.code_bytes import code_bytes
from golf.errors import GolfError
from golf.plan.history import FinishedRun
from golf.plan.machines import Machine
from golf.plan.plan import Plan, make_plan
from golf.settings.composition import compose
from golf.settings.config import Config

RANGE = 8.0  # ratio of the ends of the search to the present value
FLOAT_DIGITS = 4  # significant digits of a solved value that is no integer


class Solution(NamedTuple):
    """The override that fills the cap, and the plan with it."""

    override: str
    plan: Plan


@dataclass(frozen=True)
class Limits:
    """Limits of a solved value: bytes, and on a machine its memory and a number of steps in the time."""

    margin_bytes: int | None = None
    machine: Machine | None = None
    min_steps: int = 0

    def left(self, plan: Plan) -> float:
        """Return a number that is negative if `plan` breaks a limit: the bytes, MiB or steps left, the fewest."""
        margin = self.margin_bytes
        left = [plan.headroom.low if margin is None else plan.headroom.expected - margin]
        if plan.gpu is not None:
            left.append(plan.gpu.memory_left_mib)
        if plan.steps is not None and self.min_steps:
            left.append(plan.steps.expected - self.min_steps)
        return min(left)


def solve(
    overrides: Sequence[str],
    key: str,
    history: Sequence[FinishedRun],
    *,
    limits: Limits | None = None,
    multiple_of: int = 1,
) -> Solution:
    """Find the value of the setting `key` with the largest file that still fits: artifact + code ≤ cap - margin.

    Nothing is pruned. Without a margin the upper end of the prediction's interval has to fit, with one the expected
    value. On a machine of `limits` memory and steps have to do, too. A whole number is a multiple of `multiple_of`.
    Raises `GolfError` if `key` is not a number, does not change the bytes, or if nothing or everything in range fits.
    """
    limits = limits or Limits()
    start = compose(overrides)
    # The digits of a number hardly change the script, so its bytes are measured once.
    value, code = _number(start, key), code_bytes(start)
    # Bisection runs over whole multiples of the step, which a float has by its significant digits.
    step = multiple_of if isinstance(value, int) else 10.0 ** (math.floor(math.log10(value)) + 1 - FLOAT_DIGITS)
    # The same value is asked for several times: at the ends, in between, and for the answer.
    plans: dict[int, Plan] = {}

    def plan_at(i: int) -> Plan:
        if i not in plans:
            # Pruning would make everything fit.
            overridden = [*overrides, _override(key, i * step), "quant.prune.to_fit=false"]
            plans[i] = make_plan(compose(overridden), history, code=code, machine=limits.machine)
        return plans[i]

    def left(i: int) -> float:
        return limits.left(plan_at(i))

    smallest, largest = max(1, math.ceil(value / RANGE / step)), math.floor(value * RANGE / step)
    found = _fitting(left, smallest, largest, _describe(key, smallest * step, largest * step))
    return Solution(_override(key, found * step), plan_at(found))


def _fitting(left: Callable[[int], float], low: int, high: int, described: str) -> int:
    """Return the index in `low` … `high` with the fewest bytes left, zero or more; `left` has to be monotonic."""
    at_low, at_high = left(low), left(high)
    if abs(at_low - at_high) < 1:
        raise GolfError(f"{described} changes the bytes by nothing: solve for a setting that does.")
    if at_low < 0 and at_high < 0:
        raise GolfError(
            f"{described} brings it under the cap nowhere: at best it is {-max(at_low, at_high):,.0f} bytes over. "
            "Choose a smaller model or number format first."
        )
    if at_low >= 0 and at_high >= 0:
        raise GolfError(
            f"{described} fits everywhere, with at least {min(at_low, at_high):,.0f} bytes left: nothing to solve."
        )
    # Which end fits depends on the setting: a wider model takes more bytes, a coarser format fewer.
    fits, over = (low, high) if at_low >= 0 else (high, low)
    while abs(fits - over) > 1:
        middle = (fits + over) // 2
        fits, over = (middle, over) if left(middle) >= 0 else (fits, middle)
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


def _describe(key: str, low: float, high: float) -> str:
    return f"{key} from {low:g} to {high:g}"
