"""Parameters and attributes of a script that have the same known value in every call.

`Block(dim, gate=args.gate)` switches a part off within the class as much as `if args.gate` does.
"""

from __future__ import annotations

import ast
import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from golf.field.script_switches import FUNCTIONS, NOT_FOLLOWED, Switches, is_cheap, stored_attributes
from golf.field.static_values import UNKNOWN

MOST_ROUNDS = 5  # of values that are passed on: from the settings to the model, a block, its attention and a gate
ANSWERS = {"__bool__", "__len__", "__eq__", "__getattr__", "__new__"}  # methods that say what a test asks
PLAIN = (bool, int, float, str, type(None))


@dataclass
class Called:
    """A function or the constructor of a class, with its calls, each within the functions that it stands in."""

    function: ast.FunctionDef
    parameters: list[str]
    calls: list[tuple[ast.Call, tuple[ast.AST, ...]]] = field(default_factory=list)
    is_open: bool = False  # it is handed on, or has heirs, so that not all calls are known


class Self:
    """An object of a class whose attributes are known in part."""

    is_followed = False  # the interpreter does not call it

    def __init__(self, known: dict[str, Any]):
        self.__dict__ |= known

    def __getattr__(self, name: str) -> Any:
        if name[:2] == "__":
            raise AttributeError(name)
        return UNKNOWN


def with_constants(tree: ast.Module, known: Switches) -> Switches:
    """Return the switches that decide tests within functions by their parameters, and by attributes of `self`, too."""
    called, stores = _called(tree), stored_attributes(tree)
    for _ in range(MOST_ROUNDS):
        facts, scopes = dict[int, dict[str, Any]](), dict[int, Switches]()
        for of in called.values():
            facts[id(of.function)] = {} if of.is_open else _values(of, known, scopes)
        more, objects = replace(known, facts=facts), dict[str, Self]()
        for kind in (node for node in tree.body if isinstance(node, ast.ClassDef)):
            own = Self(_attributes(kind, stores, more, known.objects.get(kind.name)))
            if kind.name in called and not ANSWERS & {getattr(method, "name", "") for method in kind.body}:
                objects[kind.name] = own
            for method in kind.body:
                if isinstance(method, ast.FunctionDef) and [a.arg for a in method.args.args][:1] == ["self"]:
                    facts.setdefault(id(method), {})["self"] = own
        is_done = facts.keys() == known.facts.keys() and all(_is_same(facts[key], known.facts[key]) for key in facts)
        is_done = is_done and _is_same(objects, known.objects)
        known = replace(more, objects=objects)
        if is_done:
            break
    return replace(known, results=_results(tree))


def _results(tree: ast.Module) -> dict[str, tuple[ast.FunctionDef, ast.expr]]:
    """Return the functions that only return a constant or one of their parameters, by name, with what they return.

    A method has a name that nothing else in the script has.
    """
    found, names = dict[str, tuple[ast.FunctionDef, ast.expr]](), _bindings(tree)
    inside = [*tree.body, *(part for node in tree.body if isinstance(node, ast.ClassDef) for part in node.body)]
    for node in inside:
        if not isinstance(node, ast.FunctionDef) or node.decorator_list or names[node.name] > 1:
            continue
        body = [part for part in node.body if not _does_nothing(part)] or [ast.Return()]
        value = body[0].value or ast.Constant(None) if isinstance(body[0], ast.Return) else None
        if isinstance(value, ast.Constant) or (isinstance(value, ast.Name) and value.id in _parameters(node)):
            found[node.name] = (node, value)
    return found


def _parameters(function: ast.FunctionDef) -> list[str]:
    """Return the parameters that a call gives by their place, without `self`."""
    return [a.arg for a in (*function.args.posonlyargs, *function.args.args) if a.arg != "self"]


def _does_nothing(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _is_same(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    plain = [{n: vars(v) if isinstance(v, Self) else v for n, v in of.items()} for of in (a, b)]
    return plain[0] == plain[1]


def _called(tree: ast.Module) -> dict[str, Called]:
    """Return the functions and classes of a script by name, with their calls."""
    found = dict[str, Called]()
    names = _bindings(tree)
    for node in tree.body:
        inside = [node] if isinstance(node, ast.FunctionDef) else getattr(node, "body", [])
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or names[node.name] > 1:
            continue
        for function in inside:
            if isinstance(function, ast.FunctionDef) and (function is node or function.name == "__init__"):
                order = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
                found[node.name] = Called(function, order if function is node else order[1:])
    for used, parent, above in _uses(tree):
        if isinstance(used, ast.Name) and isinstance(used.ctx, ast.Load) and (of := found.get(used.id)) is not None:
            if isinstance(parent, ast.Call) and parent.func is used:
                of.calls.append((parent, above))
            elif not (isinstance(parent, ast.Attribute) or _is_question(parent)):
                of.is_open = True
    return found


def _bindings(tree: ast.Module) -> Counter[str]:
    """Return how often a script binds each name, in whatever scope."""
    names = Counter[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names[node.id] += 1
        elif isinstance(node, ast.arg):
            names[node.arg] += 1
        elif isinstance(node, ast.alias):
            names[node.asname or node.name] += 1
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            names[node.name] += 1
    return names


def _is_question(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance"


def _uses(node: ast.AST, above: tuple[ast.AST, ...] = ()) -> Iterator[tuple[ast.AST, ast.AST, tuple[ast.AST, ...]]]:
    """Yield the nodes below one, with their parents and the functions around them; annotations are left out."""
    inside = (*above, node) if isinstance(node, FUNCTIONS) else above
    for key, value in ast.iter_fields(node):
        if key not in ("annotation", "returns"):
            for inner in value if isinstance(value, list) else [value]:
                if isinstance(inner, ast.AST):
                    yield inner, node, inside
                    yield from _uses(inner, inside)


def _scope(above: tuple[ast.AST, ...], known: Switches, scopes: dict[int, Switches]) -> Switches:
    """Return what decides tests within the innermost of some functions; `scopes` keeps it by the function's id."""
    for function in above:
        if id(function) not in scopes:
            scopes[id(function)] = known.within(function)  # type: ignore[arg-type]
        known = scopes[id(function)]
    return known


def _values(of: Called, known: Switches, scopes: dict[int, Switches]) -> dict[str, Any]:
    """Return the parameters that have one value in all calls."""
    seen = dict[str, list[Any]]()
    defaults = _defaults(of.function, known)
    names = [*of.parameters, *(a.arg for a in of.function.args.kwonlyargs)]
    for call, above in of.calls:
        if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
            return {}
        given = dict(zip(of.parameters, call.args, strict=False)) | {k.arg or "": k.value for k in call.keywords}
        scope = _scope(above, known, scopes)
        for name in names:
            value = _value(given[name], scope) if name in given else defaults.get(name, UNKNOWN)
            seen.setdefault(name, []).append(value)
    return {name: values[0] for name, values in seen.items() if _is_one(values)}


def _is_one(values: list[Any]) -> bool:
    first = values[0]
    if isinstance(first, Self):
        return all(value is first for value in values)
    return isinstance(first, PLAIN) and all(type(value) is type(first) and value == first for value in values)


def _defaults(function: ast.FunctionDef, known: Switches) -> dict[str, Any]:
    order = [*function.args.posonlyargs, *function.args.args]
    by_place = zip(reversed(order), reversed(function.args.defaults), strict=False)
    by_name = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return {of.arg: _value(value, known) for of, value in (*by_place, *by_name) if value is not None}


def _value(node: ast.expr, known: Switches) -> Any:
    if is_cheap(node):
        with contextlib.suppress(*NOT_FOLLOWED), torch.device("meta"):
            return known.walk.value(node, known.names.new_child())
    return UNKNOWN


def _attributes(kind: ast.ClassDef, stores: Counter[str], known: Switches, own: Self | None) -> dict[str, Any]:
    """Return the attributes that the constructor of a class alone stores, with their known values.

    `own` has those that are known already, of which others are made.
    """
    made = [node for node in kind.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    found = dict[str, Any]()
    if not made or not stores:
        return found
    inside = known.within(made[0])
    if own is not None:
        inside.names["self"] = own
    for node in made[0].body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Attribute):
            target, value = node.targets[0], _value(node.value, inside)
            is_own = ast.unparse(target.value) == "self" and stores[target.attr] == 1
            found |= {target.attr: value} if is_own and isinstance(value, PLAIN) else {}
    return found
