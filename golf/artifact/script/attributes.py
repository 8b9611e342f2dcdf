"""Attributes of the bundle's objects that are known: those that hold a group of settings, and those that never change.

A list that only techniques append to stays empty without them, and so does what would be done with its items.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import Any

from golf.artifact.script.calls import callee_name
from golf.artifact.script.facts import UNKNOWN, Facts, Path, Scope, assignments
from golf.artifact.script.flat import Flat

EMPTY = (ast.List, ast.Tuple, ast.Dict)


def groups_held(flat: Flat, facts: Facts) -> dict[tuple[str, str], Path]:
    """(class, attribute) → the group of settings that is put there."""
    found = {}
    for node in _classes(flat):
        for part in node.body:
            kind = ast.unparse(part.annotation) if isinstance(part, ast.AnnAssign) else ""
            if kind in facts.groups and node.name not in facts.groups:
                found[node.name, ast.unparse(part.target)] = facts.groups[kind]  # type: ignore[attr-defined]
        for name, value, scope in _set_by_constructor(node, facts):
            if (path := scope.path(value)) is not None:
                found[node.name, name] = path
    for node in _classes(flat):  # what a class inherits
        for base in map(ast.unparse, node.bases):
            found |= {(node.name, name): path for (owner, name), path in found.items() if owner == base}
    return found


def fixed(flat: Flat, facts: Facts) -> dict[tuple[str, str], Any]:
    """(class, attribute) → what its constructor puts there if nobody changes it: a plain value, or nothing in it."""
    stores, changed = _stores(flat), _changed_in_place(flat)
    related = {base for node in _classes(flat) for base in map(ast.unparse, node.bases)}
    related |= {node.name for node in _classes(flat) if {ast.unparse(b) for b in node.bases} & related}
    found = {}
    for node in _classes(flat):
        for name, value, scope in _set_by_constructor(node, facts):
            times = stores[name, ""] + (
                sum(n for (attr, _), n in stores.items() if attr == name)
                if node.name in related
                else stores[name, node.name]
            )
            known = () if isinstance(value, EMPTY) and not list(ast.iter_child_nodes(value))[1:] else scope.value(value)
            if isinstance(known, tuple | dict) and (known or name in changed):
                continue
            if times == 1 and known is not UNKNOWN:
                found[node.name, name] = known
    return found


def never_passed(flat: Flat) -> dict[tuple[str, str], Any]:
    """(dataclass, field) → its plain default, where nobody ever gives it another value."""
    uses = [flat.uses(statement) for statement in flat.statements()]
    not_only_called = {name for u in uses for name in u.passed_on | u.local}
    calls: dict[str, list[ast.Call]] = {}
    for call in (call for u in uses for call in u.calls):
        calls.setdefault(callee_name(call), []).append(call)
    given = {keyword.arg for own in calls.values() for call in own for keyword in call.keywords}
    stored = {name for name, _ in _stores(flat)}
    found = {}
    for node in _classes(flat):
        if not any("dataclass" in ast.unparse(d) for d in node.decorator_list) or node.name in not_only_called:
            continue
        own = calls.get(node.name, [])
        if any(isinstance(a, ast.Starred) for call in own for a in call.args):
            continue
        if any(keyword.arg is None for call in own for keyword in call.keywords):
            continue
        fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
        for part in fields[max((len(call.args) for call in own), default=0) :]:
            name = ast.unparse(part.target)
            if isinstance(part.value, ast.Constant) and name not in given | stored:
                found[node.name, name] = part.value.value
    return found


def _classes(flat: Flat) -> Iterator[ast.ClassDef]:
    return (node for node in flat.statements() if isinstance(node, ast.ClassDef))


def _set_by_constructor(node: ast.ClassDef, facts: Facts) -> Iterator[tuple[str, ast.expr, Scope]]:
    """(attribute, expression, where it stands) of what `__init__` puts into `self` on every path through it."""
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            scope = Scope(facts, node.name).enter(part, node.name)
            for statement in part.body:
                for target, value in assignments(statement):
                    if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                        yield target.attr, value, scope


def _stores(flat: Flat) -> Counter[tuple[str, str]]:
    """How often an attribute is assigned to: by (attribute, class) through `self`, by (attribute, "") otherwise."""
    found: Counter[tuple[str, str]] = Counter()
    for statement in flat.statements():
        found.update(flat.uses(statement).stores)
    return found


def _changed_in_place(flat: Flat) -> set[str]:
    """Attributes whose value is used in a way that could fill it, by name."""
    return {name for statement in flat.statements() for name in flat.uses(statement).filled}
