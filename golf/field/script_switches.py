"""Values of a script's settings as far as constants and its variables decide them, and what is left of its code then.

A branch that a setting switches off does nothing. `reduced` takes it away, and keeps whatever it cannot decide.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping
from typing import Any

from golf.field.script_variables import variable_of
from golf.field.static_values import UNKNOWN, known_outcome, operated, truth

CONVERSIONS = {name: getattr(builtins, name) for name in ("int", "float", "bool", "str")}
METHODS = ("lower", "strip", "upper")  # of texts
SETTINGS = "Hyperparameters"


def switches(tree: ast.Module, values: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the values of settings by `owner.name`, under the texts `values` of the variables.

    A setting is one of the class of settings that no other statement stores to.
    """
    owners, stored = {SETTINGS}, set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            if getattr(node.value.func, "id", "") == SETTINGS:
                owners |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            stored.add(ast.unparse(node))
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("setattr", "exec", "globals", "vars"):
            # Whatever such a call stores to.
            return {}
    # A name that also stands for something else is no owner.
    owners -= {
        name.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and getattr(getattr(node.value, "func", None), "id", "") != SETTINGS
        for target in node.targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    }
    found = dict[str, Any]()
    for made in tree.body:
        if isinstance(made, ast.ClassDef) and made.name == SETTINGS:
            for part in made.body:
                target = part.targets[0] if isinstance(part, ast.Assign) else getattr(part, "target", None)
                if isinstance(target, ast.Name):
                    again = target.id in found
                    found[target.id] = UNKNOWN if again else _value(getattr(part, "value", None), {}, values)
    return {
        f"{owner}.{name}": value
        for owner in owners
        for name, value in found.items()
        if f"{owner}.{name}" not in stored and f"{SETTINGS}.{name}" not in stored and value is not UNKNOWN
    }


def without_rivals(tree: ast.Module, values: Mapping[str, str | None]) -> dict[str, Any]:
    """Return `values` with `UNKNOWN` for variables that a script reads with several defaults."""
    defaults = dict[str, set[str | None]]()
    for node in ast.walk(tree):
        if (variable := variable_of(node)) is not None:
            defaults.setdefault(variable[0], set()).add(variable[1])
    return {**values, **{name: UNKNOWN for name, texts in defaults.items() if len(texts) > 1}}


def reduced(
    body: list[ast.stmt], known: Mapping[str, Any], values: Mapping[str, Any], *, keeps_tests: bool = False
) -> list[ast.stmt]:
    """Return statements without the branches that do not run where settings have the values `known`.

    With `keeps_tests` a branch that runs stays behind its test.
    """
    return [kept for node in body for kept in _reduced(node, known, values, keeps_tests)]


def _reduced(
    node: ast.stmt, known: Mapping[str, Any], values: Mapping[str, Any], keeps_tests: bool
) -> Iterator[ast.stmt]:
    if isinstance(node, ast.If) and (holds := truth(_value(node.test, known, values))) is not None:
        branch = reduced(node.body if holds else node.orelse, known, values, keeps_tests=keeps_tests)
        yield from [ast.If(node.test, branch, [ast.Break()])] if keeps_tests else branch
        return
    changed = dict[str, list[ast.stmt]]()
    for name, value in ast.iter_fields(node):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            kept = reduced(value, known, values, keeps_tests=keeps_tests)
            if len(kept) != len(value) or any(a is not b for a, b in zip(kept, value, strict=True)):
                changed[name] = kept
    # A statement without a branch that is decided stays the same node, whose digest is known.
    yield type(node)(**{**dict(ast.iter_fields(node)), **changed}) if changed else node


def _value(node: ast.expr | None, known: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    """Return the value of an expression, `UNKNOWN` where settings and constants do not decide it."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Attribute):
        return known.get(ast.unparse(node), UNKNOWN) if isinstance(node.value, ast.Name) else UNKNOWN
    if isinstance(node, ast.Call):
        return _called(node, known, values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        holds = truth(_value(node.operand, known, values))
        return UNKNOWN if holds is None else not holds
    if isinstance(node, ast.BoolOp):
        truths, decides = [truth(_value(v, known, values)) for v in node.values], isinstance(node.op, ast.Or)
        # What stands before the deciding side may be unknown: it is asked for nothing but its truth.
        return decides if decides in truths else UNKNOWN if None in truths else not decides
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        sides = [_value(side, known, values) for side in (node.left, node.comparators[0])]
        return operated(node.ops[0], *sides)
    if isinstance(node, ast.BinOp):
        return operated(node.op, _value(node.left, known, values), _value(node.right, known, values))
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        items = [_value(item, known, values) for item in node.elts]
        return UNKNOWN if any(item is UNKNOWN for item in items) else tuple(items)
    return UNKNOWN


def _called(node: ast.Call, known: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    if (variable := variable_of(node)) is not None:
        # Where no value is given, this very read decides what stands in its place.
        default = _value(node.args[1], known, values) if len(node.args) > 1 else None
        text = values.get(variable[0])
        return default if text is None else text
    if getattr(node.func, "id", "") == "getattr" and len(node.args) > 1 and isinstance(node.args[0], ast.Name):
        name = _value(node.args[1], known, values)
        return known.get(f"{node.args[0].id}.{name}", UNKNOWN)
    if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS and not node.args:
        text = _value(node.func.value, known, values)
        return known_outcome(getattr(text, node.func.attr, None)) if isinstance(text, str) else UNKNOWN
    arguments = [_value(argument, known, values) for argument in node.args]
    convert = CONVERSIONS.get(getattr(node.func, "id", ""))
    return known_outcome(convert, *arguments) if len(arguments) == 1 and not node.keywords else UNKNOWN
