"""Values of a script's settings as far as constants and its variables decide them, and what is left of its code then.

A branch that a setting switches off does nothing. `reduced` takes it away, and keeps whatever it cannot decide.
"""

from __future__ import annotations

import ast
from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from golf.field.script_interpreter import BuiltError, Interpreter, LeftError, UncountableError
from golf.field.script_variables import variable_of
from golf.field.static_values import UNKNOWN

SETTINGS = "Hyperparameters"
STORES = ("setattr", "exec", "globals", "vars")  # calls that may store to any setting
_NOT_FOLLOWED = (BuiltError, LeftError, UncountableError, RecursionError)


@dataclass(frozen=True)
class Switches:
    """Decides the branches of a script by its settings, and by its variables where a test reads them."""

    walk: Interpreter
    names: ChainMap[str, Any]  # the class of settings and the objects of it, by their names

    def holds(self, test: ast.expr) -> bool | None:
        """Return whether a test holds, None where settings and constants do not decide it."""
        try:
            with torch.device("meta"):
                return self.walk.holds(test, self.names.new_child())
        except _NOT_FOLLOWED:
            return None


def switches(tree: ast.Module, values: Mapping[str, Any]) -> Switches:
    """Return what decides branches under the texts `values` of the variables.

    A setting is one of the class of settings that no other statement stores to.
    """
    walk, stored = Interpreter(values), _stored(tree)
    if stored is None:
        return Switches(walk, ChainMap())
    owners, known = dict[str, Any](), settings(tree, values)[0]
    for owner in _owners(tree):
        unknown = {name for name in known if {name, f"{owner}.{name}", f"{SETTINGS}.{name}"} & stored}
        owners[owner] = SimpleNamespace(**{name: UNKNOWN if name in unknown else known[name] for name in known})
    return Switches(walk, ChainMap(owners))


def settings(tree: ast.Module, values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of the class of settings by name, and the defaults of the variables that it reads.

    A default may be computed from other settings. Both are empty where the class cannot be followed.
    """
    walk = Interpreter(values)
    names: ChainMap[str, Any] = ChainMap({})
    for node in tree.body:
        own = node if isinstance(node, ast.ClassDef) and node.name == SETTINGS else None
        inside = names.new_child() if own else names
        try:
            with torch.device("meta"):
                walk.run(own.body if own else [node], inside)
        except _NOT_FOLLOWED:
            if own:
                return {}, {}
        if own:
            return dict(inside.maps[0]), walk.defaults
    return {}, {}


def with_computed(
    tree: ast.Module, defaults: Mapping[str, str | None], given: Mapping[str, str]
) -> dict[str, str | None]:
    """Return `defaults` with the texts of those that the class of settings makes of others under the texts `given`."""
    computed = settings(tree, given)[1]
    known = {name: value for name, value in computed.items() if isinstance(value, str | int | float)}
    return {name: str(known[name]) if text is None and name in known else text for name, text in defaults.items()}


def _stored(tree: ast.Module) -> set[str] | None:
    """Return the attributes that statements store to, those of `self` in the class of settings by name alone.

    Returns None if a call may store to any.
    """
    stored = set[str]()
    own = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == SETTINGS]
    inside = {id(inner) for node in own for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            stored.add(node.attr if id(node) in inside else ast.unparse(node))
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in STORES:
            return None
    return stored


def _owners(tree: ast.Module) -> set[str]:
    """Return the names that stand for the settings, without those that stand for something else, too."""
    made = list[ast.Name]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and getattr(getattr(node.value, "func", None), "id", "") == SETTINGS:
            made += [target for target in node.targets if isinstance(target, ast.Name)]
    stored = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)]
    return {SETTINGS, *(name.id for name in made)} - {name.id for name in stored if name not in made}


def without_rivals(tree: ast.Module, values: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the texts in `values`, with `UNKNOWN` for variables that a script reads with several defaults."""
    defaults = dict[str, set[str | None]]()
    for node in ast.walk(tree):
        if (variable := variable_of(node)) is not None:
            defaults.setdefault(variable[0], set()).add(variable[1])
    texts_given = {name: text for name, text in values.items() if text is not None}
    return {**texts_given, **{name: UNKNOWN for name, texts in defaults.items() if len(texts) > 1}}


def reduced(body: list[ast.stmt], known: Switches, *, keeps_tests: bool = False) -> list[ast.stmt]:
    """Return statements without the branches that do not run.

    With `keeps_tests` a branch that runs stays behind its test.
    """
    return [kept for node in body for kept in _reduced(node, known, keeps_tests)]


def _reduced(node: ast.stmt, known: Switches, keeps_tests: bool) -> Iterator[ast.stmt]:
    if isinstance(node, ast.If) and (holds := known.holds(node.test)) is not None:
        branch = reduced(node.body if holds else node.orelse, known, keeps_tests=keeps_tests)
        yield from [ast.If(node.test, branch, [ast.Break()])] if keeps_tests else branch
        return
    changed = dict[str, list[ast.stmt]]()
    for name, value in ast.iter_fields(node):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            kept = reduced(value, known, keeps_tests=keeps_tests)
            if len(kept) != len(value) or any(a is not b for a, b in zip(kept, value, strict=True)):
                changed[name] = kept
    # A statement without a branch that is decided stays the same node, whose digest is known.
    yield type(node)(**{**dict(ast.iter_fields(node)), **changed}) if changed else node
