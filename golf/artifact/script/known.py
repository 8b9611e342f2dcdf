"""What can be told of a whole program: its constants, the settings that it changes, functions that return one value."""

from __future__ import annotations

import ast
import contextlib
from typing import Any

from golf.artifact.script.facts import UNKNOWN, Facts, Scope, assignments
from golf.artifact.script.flat import Flat
from golf.artifact.script.scopes import walk


def literals(flat: Flat) -> dict[str, Any]:
    """Constants at the top of modules. Containers that somebody fills begin as empty ones, which do not count."""
    found = {}
    for node in flat.statements():
        for target, value in assignments(node):
            with contextlib.suppress(ValueError, SyntaxError):
                literal = ast.literal_eval(value)
                if isinstance(target, ast.Name) and (literal or not isinstance(literal, list | dict | set)):
                    found[target.id] = literal
    return found


def changed_settings(flat: Flat, facts: Facts) -> set[tuple[str, ...]]:
    """Settings that the program may give another value: by assignment, or in a copy with replaced fields."""
    new_values: list[tuple[str, ast.expr]] = []
    for statement in flat.statements():
        for node in walk(statement):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("dataclasses.replace", "replace"):
                new_values += [(keyword.arg or "", keyword.value) for keyword in node.keywords]
            new_values += [
                (target.attr, value)
                for target, value in assignments(node)
                if isinstance(target, ast.Attribute) and ast.unparse(target.value) != "self"
            ]
    return {
        path
        for path, known in facts.values.items()
        for name, value in new_values
        if path[-1] == name and not (isinstance(value, ast.Constant) and value.value == known)
    }


def results(flat: Flat, facts: Facts) -> dict[str, Any]:
    """Functions that do nothing but return one known value."""
    found = dict(facts.given)
    for node in flat.statements():
        if isinstance(node, ast.FunctionDef):
            body = [n for n in node.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
            if not body or (len(body) == 1 and isinstance(body[0], ast.Return | ast.Pass)):
                returned = getattr(body[0], "value", None) if body else None
                returned = returned or ast.Constant(None)
                value = Scope(facts).enter(node, node.name).value(returned)
                if value is not UNKNOWN:
                    found[node.name] = value
    return found
