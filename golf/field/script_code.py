"""Find the parts of a script that do not run at its settings: branches, loops of no pass, classes nobody builds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from golf.field.env_techniques import is_off

COMPARISONS: dict[type, Any] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}
WORDS = {"true": 1.0, "false": 0.0}
_CALIBRATES = re.compile("hessian|calib", re.IGNORECASE)  # copies of the model that only look at its inputs


def dead_code(tree: ast.Module, declared: Mapping[str, str | None]) -> set[ast.AST]:
    """Return the nodes that do not run at the values of the variables `declared`, nor are they in what does."""
    settings = {name.lower(): value for name, value in declared.items()}
    dead: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp) and (truth := _truth(node.test, settings)) is not None:
            branch = node.orelse if truth else node.body
            for part in branch if isinstance(branch, list) else [branch]:
                dead |= set(ast.walk(part))
        elif isinstance(node, ast.ListComp | ast.GeneratorExp) and _has_no_pass(node.generators[0].iter, settings):
            dead |= set(ast.walk(node))
        elif isinstance(node, ast.For) and _has_no_pass(node.iter, settings):
            for part in node.body:
                dead |= set(ast.walk(part))
    return dead


def built_classes(tree: ast.Module, dead: set[ast.AST]) -> set[str]:
    """Return the names of the classes that statements of the module reach, but for those of calibration."""
    defined = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)}
    reached, waiting = set[str](), [node for node in tree.body if node not in defined.values()]
    while waiting:
        for name in _live_names(waiting.pop(), dead):
            if name in defined and name not in reached and not _CALIBRATES.search(name):
                reached.add(name)
                waiting.append(defined[name])
    classes = {name for name, node in defined.items() if isinstance(node, ast.ClassDef)}
    # A file without a start, such as a part of a script, builds nothing and means everything.
    return classes & reached or classes


def _live_names(tree: ast.AST, dead: set[ast.AST]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node not in dead:
            yield node.id


def _has_no_pass(items: ast.expr, settings: Mapping[str, str | None]) -> bool:
    """Tell whether `range` of a setting that is zero is looped over."""
    is_range = isinstance(items, ast.Call) and getattr(items.func, "id", "") == "range" and len(items.args) == 1
    return is_range and _truth(items.args[0], settings) is False  # type: ignore[attr-defined]


def _truth(test: ast.expr, settings: Mapping[str, str | None]) -> bool | None:
    """Return the value of a test such as `h.activation == "relu2"` under the defaults; None where they do not tell."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        truth = _truth(test.operand, settings)
        return None if truth is None else not truth
    if isinstance(test, ast.BoolOp):
        truths, decides = [_truth(value, settings) for value in test.values], isinstance(test.op, ast.Or)
        return decides if decides in truths else None if None in truths else not decides
    if isinstance(test, ast.Compare):
        compare = COMPARISONS.get(type(test.ops[0])) if len(test.ops) == 1 else None
        sides = [_operand(side, settings) for side in (test.left, test.comparators[0])]
        alike = None not in sides and type(sides[0]) is type(sides[1])
        return bool(compare(*sides)) if compare and alike else None
    value = _default(test, settings)
    return None if value is None else not is_off(value)


def _operand(node: ast.expr, settings: Mapping[str, str | None]) -> float | str | None:
    """Return a number or a text that a constant or a setting has; None where it cannot be told."""
    value = node.value if isinstance(node, ast.Constant) else _default(node, settings)
    if value is None or value is Ellipsis:
        return None
    text = str(value)
    try:
        return float(text)
    except ValueError:
        return WORDS.get(text.lower(), text)


def _default(node: ast.expr, settings: Mapping[str, str | None]) -> str | None:
    """Return the default of the setting that a name or an attribute is called by, also with a part of its words."""
    name = getattr(node, "attr", getattr(node, "id", "")).strip("_")
    named = [key for key in settings if name and (key == name or key.endswith(f"_{name}"))]
    # Constructors take `dtg` where the script's variable is DTG_ENABLED.
    named = named or [key for key in settings if key == f"{name}_enabled"]
    return settings[named[0]] if len(named) == 1 else None
