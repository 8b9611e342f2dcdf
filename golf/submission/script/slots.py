"""Find what a program never fills: attributes with one value or an empty list, parameters that no call gives."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from golf.submission.script.evaluation import COMPREHENSIONS, NOTHING, UNKNOWN, Facts, Scope, assignments
from golf.submission.script.flat import Flat
from golf.submission.script.syntax import FOREIGN, bound_names

METHODS = {f".{name}" for name in FOREIGN}  # those of other packages' objects
Slots = Mapping[str, Sequence[tuple[ast.expr, Scope]]]  # attribute → what is put there, at each place
READERS = {"bool", "in_order", "list", "tuple", "any", "sorted", "enumerate"}  # functions that only read what they get


def held_by_slots(flat: Flat, facts: Facts) -> dict[str, Any]:
    """Return attribute → value for those that always hold one value, which says that something is not there."""
    nodes = flat.nodes()
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    in_classes = Counter(name for node in classes for part in node.body for name in bound_names([part]))
    times = Counter(n.attr for n in nodes if isinstance(n, ast.Attribute) and not isinstance(n.ctx, ast.Load))
    times.update(n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
    # An attribute of a package, of a field or of a method may have the same name.
    others = {n.attr for n in nodes if isinstance(n, ast.Attribute) and ast.unparse(n.value) in flat.imports} | FOREIGN
    filled = defaultdict(list)
    for name, value, scope in (found for node in classes for found in set_in(node, facts)):
        filled[name].append((value, scope))
    own = {n: at for n, at in filled.items() if times[n] == len(at) and not in_classes[n] and n not in others}
    held = {name: [_value(*filling) for filling in at] for name, at in own.items()}
    alike = {name: first for name, (first, *rest) in held.items() if first in NOTHING and all(v is first for v in rest)}
    return alike | dict.fromkeys(_never_filled(nodes, own), ())


def set_in(node: ast.ClassDef, facts: Facts) -> Iterator[tuple[str, ast.expr, Scope]]:
    """Yield (attribute, expression, scope of the expression) of what the methods of a class put into `self`."""
    for part in (part for part in node.body if isinstance(part, ast.FunctionDef)):
        scope = Scope(facts, node.name).enter(part)
        for target, value in (pair for inner in ast.walk(part) for pair in assignments(inner)):
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                yield target.attr, value, scope


def _value(expression: ast.expr, scope: Scope) -> Any:
    # A list may be filled later.
    is_list = isinstance(expression, COMPREHENSIONS | ast.List | ast.Set | ast.Dict)
    return UNKNOWN if is_list else scope.value(expression)


def _never_filled(nodes: Sequence[ast.AST], slots: Slots) -> set[str]:
    """Return the slots whose lists stay empty: the program only loops over them, or asks whether they are."""
    empty = {name for name, set_at in slots.items() if all(_is_empty(value, scope) for value, scope in set_at)}
    # The values of a dict of lists are lists, which a loop over them may fill.
    flat = {name for name in empty if not any(isinstance(v, ast.Dict) and v.values for v, _ in slots[name])}
    only_read = {id(part) for node in nodes for part in _only_read_in(node, flat)}
    read = (n for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load))
    return empty - {node.attr for node in read if id(node) not in only_read}


def _only_read_in(node: ast.AST, flat: set[str]) -> Iterator[ast.expr]:
    """Yield the parts of `node` that it loops over or asks whether they are empty; `flat` are dicts without lists."""
    if isinstance(node, ast.For | ast.comprehension):
        yield node.iter
    elif isinstance(node, ast.If | ast.IfExp):
        yield from _operands(node.test)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield from _operands(node.operand)
    elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        # An empty list before `or` is not the result. Before `and` it is.
        yield from node.values[:-1]
    elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in READERS:
        yield from node.args
    elif isinstance(node, ast.Attribute) and node.attr in ("items", "values"):
        yield from [node.value] if getattr(node.value, "attr", "") in flat else []


def _operands(test: ast.expr) -> Iterator[ast.expr]:
    """Yield what the truth of `test` is made of."""
    for part in test.values if isinstance(test, ast.BoolOp) else ():
        yield from _operands(part)
    yield test


def _is_empty(value: ast.expr, scope: Scope) -> bool:
    """Tell whether `value` is empty, or a dict of nothing but empty lists."""
    if isinstance(value, ast.Dict):
        return all(_is_empty(part, scope) for part in value.values)
    return scope.value(value) == ()


def never_given(nodes: Sequence[ast.AST]) -> dict[int, dict[str, Any]]:
    """Return id of a function → parameter → its default, where that says that something is not there.

    Functions that are used in another way than by a call are left out, because others may call them then.
    """
    calls: dict[str, list[ast.Call]] = defaultdict(list)
    for node in nodes:
        if isinstance(node, ast.Call):
            calls[_key(node.func)].append(node)
    called = {id(call.func) for group in calls.values() for call in group}
    used = {_key(n) for n in nodes if id(n) not in called and isinstance(getattr(n, "ctx", None), ast.Load)}
    # `getattr` may get a method by its name.
    used |= METHODS | {f".{n.value}" for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    times = Counter(function.name for function in functions)
    methods = {id(part) for n in nodes if isinstance(n, ast.ClassDef) for part in n.body}
    found = {}
    for function in functions:
        key = f".{function.name}" if id(function) in methods else function.name
        # Python itself calls methods such as `__call__`, by no name.
        if times[function.name] == 1 and calls[key] and key not in used and not function.decorator_list:
            found[id(function)] = _defaults(function, calls[key], is_method=id(function) in methods)
    return found


def _key(node: ast.AST) -> str:
    """Return the name that `node` is, with a dot before that of an attribute; empty for other expressions."""
    return f".{node.attr}" if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _defaults(function: ast.FunctionDef, calls: Sequence[ast.Call], is_method: bool) -> dict[str, Any]:
    """Return parameter → default of those to which none of `calls` gives another value."""
    args = function.args
    places = [a.arg for a in args.args][is_method:]
    defaults = dict(zip(reversed(places), reversed(args.defaults), strict=False))
    defaults |= {a.arg: default for a, default in zip(args.kwonlyargs, args.kw_defaults, strict=True) if default}
    # `Class.method(object)` gives the object first, so that all of its places pass for given.
    pairs = [pair for call in calls for pair in zip(places, call.args, strict=False)]
    pairs += [(str(keyword.arg), keyword.value) for call in calls for keyword in call.keywords]
    given = {n for n, v in pairs if is_method or n not in defaults or ast.dump(v) != ast.dump(defaults[n])}
    # A call with `*` or `**` may give any.
    if "None" in given or any(isinstance(arg, ast.Starred) for call in calls for arg in call.args):
        return {}
    constants = {n: d.value for n, d in defaults.items() if isinstance(d, ast.Constant) and n not in given}
    return {name: value for name, value in constants.items() if value in NOTHING}
