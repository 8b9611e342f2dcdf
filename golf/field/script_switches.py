"""Values of a script's settings, and of the variables of its functions, as far as constants and its own decide them."""

from __future__ import annotations

import ast
import contextlib
from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch

from golf.field.script_interpreter import BuiltError, Interpreter, LeftError, UncountableError
from golf.field.script_reads import variable_of
from golf.field.static_values import UNKNOWN

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module
SETTINGS = "Hyperparameters"
TABLES = ("globals", "vars")  # calls whose result can be stored to
STORES = ("setattr", "exec", *TABLES)  # calls that may store to any setting
CHEAP = {"int", "float", "bool", "str", "len", "min", "max", "get", "getenv", "lower", "upper", "strip", "split"}
ITSELF = {"to", "cuda", "cpu", "float", "half", "bfloat16", "eval", "train", "requires_grad_"}  # methods of modules
NOT_FOLLOWED = (BuiltError, LeftError, UncountableError, RecursionError)


@dataclass(frozen=True)
class Switches:
    """Decides the branches of a script by its settings, and by its variables where a test reads them."""

    walk: Interpreter
    names: ChainMap[str, Any]  # the class of settings, the objects of it and what else is known, by their names
    owners: frozenset[str] = frozenset()  # the names of the class of settings and of its objects
    bindings: dict[int, Any] = field(default_factory=dict)  # of functions, by their ids
    facts: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)  # known parameters of functions, by their ids
    objects: Mapping[str, Any] = field(default_factory=dict)  # what is known of the objects of a class, by its name
    results: Mapping[str, Any] = field(default_factory=dict)  # of functions that compute nothing, with these, by name

    def holds(self, test: ast.expr) -> bool | None:
        """Return whether a test holds, None where settings and constants do not decide it."""
        try:
            with torch.device("meta"):
                return self.walk.holds(test, self.names.new_child())
        except NOT_FOLLOWED:
            return None

    def within(self, function: Scope) -> Switches:
        """Return the same for the body of a function or script: with its variables, where they have one known value."""
        # The function is kept with what it binds, so that no other one gets its id.
        if id(function) not in self.bindings:
            self.bindings[id(function)] = (function, _assigned(function), _bound(function))
        _, assigned, bound = self.bindings[id(function)]
        # A parameter by the name of the settings is the settings.
        names = self.names.new_child(dict.fromkeys((bound | {*assigned}) - self.owners, UNKNOWN))
        for name, value in assigned.items():
            if value is None or name in bound:
                continue
            if (made := self.objects.get(_made(value))) is not None:
                names[name] = made
            elif is_cheap(value):
                with contextlib.suppress(*NOT_FOLLOWED), torch.device("meta"):
                    known = self.walk.value(value, names)
                    # Statements may put something into a container.
                    names[name] = UNKNOWN if isinstance(known, list | dict | set) else known
        # A parameter that is stored to has other values, too.
        names |= {n: value for n, value in self.facts.get(id(function), {}).items() if n not in assigned}
        return replace(self, names=names)


def _made(value: ast.expr) -> str:
    """Return the name of what a value is an object of: that is called, and then methods which return the object."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in ITSELF:
        value = value.func.value
    return getattr(value.func, "id", "") if isinstance(value, ast.Call) else ""


def _assigned(function: Scope) -> dict[str, ast.expr | None]:
    """Return the variables that a function stores to, with the expression where one assignment is the only store."""
    values, stores = dict[str, ast.expr | None](), Counter[str]()
    for node, is_own in _in_order(function):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            stores[node.id] += 1
            values.setdefault(node.id, None)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and is_own:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if len(targets) == 1 and isinstance(targets[0], ast.Name):
                values[targets[0].id] = node.value
    return {name: value if stores[name] == 1 else None for name, value in values.items()}


def _in_order(node: ast.AST, is_own: bool = True) -> Iterator[tuple[ast.AST, bool]]:
    """Yield the nodes below a function in the order of the source, and whether they are in no function within it."""
    for inner in ast.iter_child_nodes(node):
        yield inner, is_own
        yield from _in_order(inner, is_own and not isinstance(inner, (*FUNCTIONS, ast.Lambda, ast.ClassDef)))


def _bound(function: Scope) -> set[str]:
    """Return the names that something else than a store binds in a function: parameters, functions, imports, errors.

    With them are those of global variables and of outer functions, which have other stores.
    """
    names = set[str]()
    for node, _ in _in_order(function):
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.ExceptHandler)):
            names.add(node.name or "")
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Global | ast.Nonlocal):
            names |= set(node.names)
    return names


def is_cheap(value: ast.expr) -> bool:
    """Tell whether an expression calls nothing but what is done at once, such as a conversion."""
    calls = [node.func for node in ast.walk(value) if isinstance(node, ast.Call)]
    return all(getattr(called, "id", getattr(called, "attr", "")) in CHEAP for called in calls)


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
    return Switches(walk, ChainMap(owners), frozenset(owners)).within(tree)


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
        except NOT_FOLLOWED:
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
    looks = {id(inner) for node in ast.walk(tree) if _only_looks(node) for inner in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            stored.add(node.attr if id(node) in inside else ast.unparse(node))
        elif isinstance(node, ast.Call) and (called := getattr(node.func, "id", "")) in STORES:
            if called == "setattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
                stored.add(str(node.args[1].value))
            elif called not in TABLES or id(node) not in looks:
                return None
    return stored


def _only_looks(node: ast.AST) -> bool:
    """Tell whether a node takes nothing but values from what it is applied to."""
    if isinstance(node, ast.Attribute):
        return node.attr in ("items", "keys", "values", "get", "copy")
    return isinstance(node, ast.Compare) or (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load))


def stored_attributes(tree: ast.Module) -> Counter[str]:
    """Return how many statements store to each attribute, of whatever object; empty if a call may store to any."""
    if _stored(tree) is None:
        return Counter()
    stores = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute | ast.Call) and not _loads(n)]
    return Counter(n.attr if isinstance(n, ast.Attribute) else str(n.args[1].value) for n in stores)  # type: ignore[attr-defined]


def _loads(node: ast.Attribute | ast.Call) -> bool:
    """Tell whether an attribute is read, or a call is not one that stores to an attribute by a constant name."""
    if isinstance(node, ast.Attribute):
        return isinstance(node.ctx, ast.Load)
    return getattr(node.func, "id", "") != "setattr" or len(node.args) < 2


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
