"""Values of a script that is read and not run: operators, functions and modules that are safe to call on them.

Whatever they are given, they take little memory and time, reach no file and run no code of the script.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

MOST_ITEMS = 1 << 12  # of a list or text
LARGEST_EXPONENT = 64  # as powers take any amount of memory
LARGEST_NUMBER = 1 << 62
UNKNOWN = type("Unknown", (), {})()  # what depends on more than settings


def _power(base: float, exponent: float) -> Any:
    return base**exponent if abs(exponent) <= LARGEST_EXPONENT else UNKNOWN


def _contains(item: Any, items: Any) -> bool:
    return item in items


def _range(*ends: int) -> Any:
    return list(range(*ends)) if len(range(*ends)) <= MOST_ITEMS else UNKNOWN


_OPERATORS = (
    "Add:add Sub:sub Mult:mul Div:truediv FloorDiv:floordiv Mod:mod Eq:eq NotEq:ne Lt:lt LtE:le Gt:gt GtE:ge Is:is_"
    " IsNot:is_not Not:not_ USub:neg UAdd:pos"
)
OPERATORS: dict[type, Callable[..., Any]] = {
    getattr(ast, kind): getattr(operator, name) for kind, name in (pair.split(":") for pair in _OPERATORS.split())
} | {ast.Pow: _power, ast.In: _contains, ast.NotIn: lambda item, items: not _contains(item, items)}
NUMBERS: dict[str, Callable[..., Any]] = {
    made.__name__: made for made in (int, float, bool, str, len, max, min, abs, sum, round, any, all, sorted, divmod)
} | {"range": _range}
LISTS: dict[str, Callable[..., Any]] = {made.__name__: made for made in (list, tuple, set, enumerate, zip, reversed)}
_MODULES = (
    "Module Parameter Linear Embedding LayerNorm RMSNorm Conv1d Bilinear ModuleList ParameterList ModuleDict"
    " ParameterDict Sequential Identity Dropout GELU ReLU SiLU"
)
_FUNCTIONS = (
    "zeros ones empty randn rand full eye tensor linspace arange stack cat zeros_like ones_like full_like randn_like"
    " float32 bfloat16 log exp sigmoid"
)
LIBRARY: dict[str, Any] = {
    **{f"nn.{name}": getattr(nn, name) for name in _MODULES.split()},
    **{f"torch.{name}": getattr(torch, name) for name in _FUNCTIONS.split()},
    **{f"math.{name}": getattr(math, name) for name in ("sqrt", "ceil", "floor", "log", "log2", "exp", "pi", "gcd")},
}
METHODS = {
    kind: set(names.split())
    for kind, names in (
        (str, "split strip lower upper startswith endswith"),
        (list, "append extend index count insert"),
        (dict, "get keys values items"),
        (set, "add"),
        (nn.Module, "append add_module register_parameter register_buffer to bfloat16 float"),
        (Tensor, "float clone to bfloat16 half unsqueeze repeat expand view reshape mul_"),
    )
}


def outcome(compute: Callable[..., Any] | None, *values: Any, **keywords: Any) -> Any:
    """Return what `compute` returns, `UNKNOWN` where it refuses its arguments or returns too much to keep."""
    if compute is None:
        return UNKNOWN
    try:
        result = compute(*values, **keywords)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RuntimeError):
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
    if isinstance(value, Tensor | str) or not hasattr(value, "__iter__"):
        return None
    return list(value)
