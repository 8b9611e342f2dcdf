"""Parameters of functions, and fields of dataclasses, that have one value in the whole program."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from golf.submission.script.evaluation import NOTHING, UNKNOWN
from golf.submission.script.syntax import FOREIGN, parameters, walk

METHODS = {f".{name}" for name in FOREIGN}  # those of other packages' objects


class Callee(NamedTuple):
    """A function, a method or the constructor of a dataclass."""

    node: ast.FunctionDef | ast.ClassDef
    name: str  # with a dot before that of a method
    places: list[str]  # parameters that a call may give by place
    defaults: dict[str, ast.expr]
    is_method: bool
    body: Sequence[ast.stmt]


def one_valued(nodes: Sequence[ast.AST]) -> dict[int, dict[str, Any]]:
    """Return id of a function or dataclass → parameter → its value, where that says that something is not there.

    Each call gives the parameter this value, or leaves it at a default of this value. Functions that are used in
    another way than by a call are left out, because others may call them then.
    """
    calls: dict[str, list[ast.Call]] = defaultdict(list)
    for node in nodes:
        if isinstance(node, ast.Call):
            calls[_key(node.func)].append(node)
    called = {id(call.func) for group in calls.values() for call in group}
    # Naming a type makes no object of it.
    kinds = (getattr(n, name, None) for n in nodes for name in ("annotation", "returns"))
    called |= {id(part) for kind in kinds if kind for part in walk(kind)}
    used = {_key(n) for n in nodes if id(n) not in called and _is_read(n)}
    # `getattr` may get a method by its name.
    used |= {f".{n.value}" for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    # A copy may have other fields than the constructor gave.
    copied = {k.arg for name in ("replace", ".replace") for call in calls[name] for k in call.keywords}
    callees, classes = list(_callees(nodes)), {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    times = Counter(callee.name for callee in callees)
    found = {}
    for callee in callees:
        if times[callee.name] == 1 and callee.name not in used | METHODS and calls[callee.name]:
            given = [_given(call, callee, classes) for call in calls[callee.name]]
            bound = {n.id for n in _inside(callee) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
            bound |= {n.arg for n in _inside(callee) if isinstance(n, ast.arg)}
            values = {name: _one([call.get(name) for call in given]) for name in callee.defaults.keys() - bound}
            if isinstance(callee.node, ast.ClassDef):
                values = {name: value for name, value in values.items() if not copied & {name, None}}
            found[id(callee.node)] = {name: value for name, value in values.items() if value is not UNKNOWN}
    return found


def _key(node: ast.AST) -> str:
    """Return the name that `node` is, with a dot before that of an attribute; empty for other expressions."""
    return f".{node.attr}" if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _is_read(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)


def _callees(nodes: Sequence[ast.AST]) -> Iterator[Callee]:
    methods = {id(part) for n in nodes if isinstance(n, ast.ClassDef) for part in n.body}
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and not (node.args.vararg or node.args.kwarg or node.decorator_list):
            args, is_method = node.args, id(node) in methods
            places = [a.arg for a in args.args][is_method:]
            defaults = dict(zip(reversed(places), reversed(args.defaults), strict=False))
            defaults |= {a.arg: d for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d}
            required = {a.arg: ast.Name(a.arg) for a in parameters(node)[is_method:] if a.arg not in defaults}
            yield Callee(
                node,
                f".{node.name}" if is_method else node.name,
                places,
                {**required, **defaults},
                is_method,
                node.body,
            )
        elif isinstance(node, ast.ClassDef) and "dataclass" in " ".join(map(ast.unparse, node.decorator_list)):
            fields = [part for part in node.body if isinstance(part, ast.AnnAssign) and not node.bases]
            defaults = {ast.unparse(f.target): f.value for f in fields if f.value}
            yield Callee(node, node.name, [ast.unparse(f.target) for f in fields], defaults, False, [])


def _inside(callee: Callee) -> Iterator[ast.AST]:
    for part in callee.body:
        yield from walk(part)


def _given(call: ast.Call, callee: Callee, classes: set[str]) -> dict[str, ast.expr]:
    """Return what `call` gives each parameter, or nothing if that cannot be told; `classes` are the program's."""
    names = [keyword.arg for keyword in call.keywords]
    # `Class.method(object)` gives the object first.
    by_class = callee.is_method and getattr(getattr(call.func, "value", None), "id", "") in classes
    if None in names or by_class or any(isinstance(arg, ast.Starred) for arg in call.args):
        return {}
    by_name = {str(keyword.arg): keyword.value for keyword in call.keywords}
    return {**callee.defaults, **dict(zip(callee.places, call.args, strict=False)), **by_name}


def _one(given: Sequence[ast.expr | None]) -> Any:
    """Return the one value that all of `given` are, or `UNKNOWN`."""
    try:
        first, *others = (ast.literal_eval(value) if value else UNKNOWN for value in given)
    except ValueError:
        return UNKNOWN
    is_nothing = first in NOTHING and not isinstance(first, list | dict)
    return first if is_nothing and all(type(o) is type(first) and o == first for o in others) else UNKNOWN
