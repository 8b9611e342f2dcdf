"""Variables of a script's functions that only name a value for the statement behind them.

Whoever writes `x = f(a)` and then `y = g(x)` computes what `y = g(f(a))` does.
"""

from __future__ import annotations

import ast
import copy
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef
MOST_NODES = 100  # of an expression that takes the place of a name
_HEADS = {ast.If: "test", ast.For: "iter"}  # the part of a statement that runs before its body, and once
_WHOLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)
_MAY_CHANGE = (ast.Call, ast.Await, ast.Attribute, ast.Subscript)
_LATER = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.BoolOp, ast.IfExp)


def own_variables(function: Function) -> list[str]:
    """Return the variables that only a function itself stores to, in their order; parameters are the caller's."""
    others, stored = set[str](), dict[str, None]()
    for inner in ast.walk(function):
        if isinstance(inner, ast.arg):
            others.add(inner.arg)
        elif isinstance(inner, ast.Global | ast.Nonlocal):
            others |= set(inner.names)
        elif isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler):
            others.add(inner.name or "")
        elif isinstance(inner, ast.alias):
            others.add(inner.asname or inner.name)
    for inner in ast.walk(function):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store) and inner.id not in others:
            stored.setdefault(inner.id)
    return [*stored]


def inlined(function: Any) -> Any:
    """Return a function with each variable that is stored and read once, by the next statement, in its place.

    Reads within an f-string do not count, because digests take no notice of its values.
    """
    names = [(n.id, isinstance(n.ctx, ast.Load)) for n in _outside_texts(function) if isinstance(n, ast.Name)]
    count = Counter(names)
    once = {name for name in own_variables(function) if count[name, True] == count[name, False] == 1}
    return _bodies(function, once) if once else function


def _outside_texts(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and what is below it, but for f-strings."""
    if not isinstance(node, ast.JoinedStr):
        yield node
        for inner in ast.iter_child_nodes(node):
            yield from _outside_texts(inner)


def _bodies(node: Any, once: set[str]) -> Any:
    fields = dict(ast.iter_fields(node))
    for key, value in fields.items():
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            fields[key] = _joined([_bodies(inner, once) for inner in value], once)
        elif isinstance(value, list) and value and isinstance(value[0], ast.ExceptHandler | ast.match_case):
            fields[key] = [_bodies(inner, once) for inner in value]
    return type(node)(**fields) if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case) else node


def _joined(body: list[Any], once: set[str]) -> list[Any]:
    left: list[Any] = []
    # From the end, so that a value which goes through several names goes all the way.
    for node in reversed(body):
        target = assigned_name(node)
        is_joined = bool(left) and target in once and _is_short(node.value) and _is_short(left[-1])
        joined = _with_value(left[-1], target, node.value) if is_joined else None
        if joined is None:
            left.append(node)
        else:
            left[-1] = joined
    return left[::-1]


def _is_short(node: ast.AST) -> bool:
    """Tell whether something has the length of a line or a few: longer chains of names would nest without end.

    A body does not count, which nothing is put into.
    """
    head = getattr(node, _HEADS[type(node)]) if type(node) in _HEADS else node
    return len([*itertools.islice(ast.walk(head), MOST_NODES + 1)]) <= MOST_NODES


def assigned_name(node: Any) -> str:
    """Return the one name that a statement assigns a value to, empty for other statements."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        return getattr(node.targets[0], "id", "")
    return getattr(node.target, "id", "") if isinstance(node, ast.AnnAssign) and node.value else ""


def _with_value(node: Any, name: str, value: ast.expr) -> Any:
    """Return a statement with `value` where it reads `name`, None where it reads it later, not at once or not at all.

    What the statement calls before it reads the name may change the value, unless that is made without a call.
    """
    head = _HEADS.get(type(node), "value" if isinstance(node, _WHOLE) else "")
    part: ast.expr | None = getattr(node, head, None) if head else None
    if part is None or (path := _path(part, name)) is None or any(isinstance(above, _LATER) for above in path):
        return None
    others = {id(n) for n in ast.walk(part) if isinstance(n, ast.Call | ast.Await)} - {id(above) for above in path}
    if others and any(isinstance(inner, _MAY_CHANGE) for inner in ast.walk(value)):
        return None
    made = _Replaced(name, value).visit(copy.deepcopy(part))
    return type(node)(**{**dict(ast.iter_fields(node)), head: made})


def _path(node: ast.AST, name: str) -> list[ast.AST] | None:
    """Return the nodes from one down to the read of a name, None where there is none."""
    if isinstance(node, ast.Name) and node.id == name:
        return [node]
    if isinstance(node, ast.JoinedStr):
        return None
    for inner in ast.iter_child_nodes(node):
        if (path := _path(inner, name)) is not None:
            return [node, *path]
    return None


class _Replaced(ast.NodeTransformer):
    def __init__(self, name: str, value: ast.expr):
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.value if node.id == self.name else node
