"""Values of a script that is read and not run: operators, functions and modules that are safe to call on them.

Whatever they are given, they take little memory and time, reach no file and run no code of the script.
"""

from __future__ import annotations

import ast
import builtins
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from golf.tables import table_of

MOST_ITEMS = 1 << 12  # of a list or text
LARGEST_EXPONENT = 64  # as powers take any amount of memory
LARGEST_NUMBER = 1 << 62
UNKNOWN = type("Unknown", (), {})()  # what depends on more than settings


def _power(base: float, exponent: float) -> Any:
    return base**exponent if abs(exponent) <= LARGEST_EXPONENT else UNKNOWN


def _contains(item: Any, items: Any) -> bool:
    return item in items


_NAMES = table_of(__file__)
OPERATORS: dict[type, Callable[..., Any]] = {
    getattr(ast, kind): getattr(operator, name) for kind, name in _NAMES["operators"].items()
} | {ast.Pow: _power, ast.In: _contains, ast.NotIn: lambda item, items: not _contains(item, items)}
NUMBERS: dict[str, Callable[..., Any]] = {name: getattr(builtins, name) for name in _NAMES["numbers"]}
NUMBERS["range"] = lambda *ends: list(range(*ends)) if len(range(*ends)) <= MOST_ITEMS else UNKNOWN
LISTS: dict[str, Callable[..., Any]] = {name: getattr(builtins, name) for name in _NAMES["lists"]}
LIBRARY: dict[str, Any] = {
    f"{prefix}.{name}": getattr(module, name)
    for prefix, module, names in (("nn", nn, "torch.nn"), ("torch", torch, "torch"), ("math", math, "math"))
    for name in _NAMES[names]
}
_OWNERS: tuple[type, ...] = (str, list, dict, set, nn.Module, Tensor)
METHODS: dict[type, set[str]] = {kind: set(_NAMES["methods"][kind.__name__]) for kind in _OWNERS}


def outcome(compute: Callable[..., Any] | None, *values: Any, **keywords: Any) -> Any:
    """Return what `compute` returns, `UNKNOWN` where it refuses its arguments or returns too much to keep."""
    if compute is None:
        return UNKNOWN
    try:
        result = compute(*values, **keywords)
    except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError, RuntimeError):
        return UNKNOWN
    is_large = isinstance(result, int) and abs(result) > LARGEST_NUMBER
    return UNKNOWN if is_large or (isinstance(result, str | list | tuple) and len(result) > MOST_ITEMS) else result


def known_outcome(compute: Callable[..., Any] | None, *values: Any, **keywords: Any) -> Any:
    """Return the same, `UNKNOWN` where an argument is unknown, too."""
    is_known = all(value is not UNKNOWN for value in (*values, *keywords.values()))
    return outcome(compute, *values, **keywords) if is_known else UNKNOWN


def operated(op: ast.AST, left: Any, right: Any) -> Any:
    """Return the result of an operator."""
    lengths = [len(value) for value in (left, right) if isinstance(value, str | list | tuple)]
    counts = [value for value in (left, right) if isinstance(value, int)]
    # Repeated and formatted texts can take any amount of memory.
    is_long = bool(lengths and counts) and (isinstance(op, ast.Mod) or lengths[0] * counts[0] > MOST_ITEMS)
    is_small = not is_long and is_flat(left) and is_flat(right)
    return known_outcome(OPERATORS.get(type(op)), left, right) if is_small else UNKNOWN


def is_flat(value: Any) -> bool:
    """Tell whether a value holds no lists in lists, which can be exponentially larger than they look."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return not any(isinstance(item, list | tuple | dict) for item in items)


def truth(value: Any) -> bool | None:
    """Return whether a condition holds, None where it is unknown."""
    known = known_outcome(bool, value)
    return None if known is UNKNOWN else bool(known)


def elements(value: Any) -> list[Any] | None:
    """Return what a loop goes through, None where it is unknown."""
    return list(value) if hasattr(value, "__iter__") and not isinstance(value, Tensor | str) else None
