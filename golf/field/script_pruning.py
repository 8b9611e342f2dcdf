"""The parts of a script that run, without what hands on values that nothing reads.

Where a part is off, its arguments still go from call to call. They are nothing to the parts that are on.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Mapping

Parts = dict[str, list[ast.stmt]]  # statements by the name of what they define
INIT = ".__init__"
MOST_ROUNDS = 6  # each takes away what the one before left without a reader


def pruned(parts: Parts, only_looks: Callable[[ast.AST | None], bool]) -> Parts:
    """Return `parts` without attributes of `self` and parameters that nothing in them reads.

    `only_looks` tells whether an expression has no effect but its value. Parts without such a thing stay the same.
    """
    for _ in range(MOST_ROUNDS):
        names, attributes = _reads(parts)
        called = {name: parts[name] for name in parts if name.removesuffix(INIT) in names}
        unread = {name.removesuffix(INIT): of for name in called if (of := _unread_parameters(name, parts[name]))}
        unread = _without_effects(unread, parts, only_looks)
        change = _Pruned(unread, attributes, only_looks)
        fewer = {name: change.part(name, statements) for name, statements in parts.items()}
        if all(fewer[name] is parts[name] for name in parts):
            break
        parts = fewer
    return parts


def _reads(parts: Parts) -> tuple[set[str], set[str]]:
    """Return the names that are read, and the attributes; a text may be an attribute's for `getattr`."""
    nodes = [node for statements in parts.values() for statement in statements for node in ast.walk(statement)]
    names = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    texts = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return names, texts | {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load)}


def _function(name: str, statements: list[ast.stmt]) -> ast.FunctionDef | None:
    """Return the function that a part is, if calls go by the name of the part or of its class."""
    is_called = "." not in name or name.endswith(INIT)
    return statements[0] if is_called and len(statements) == 1 and isinstance(statements[0], ast.FunctionDef) else None


def _unread_parameters(name: str, statements: list[ast.stmt]) -> dict[str, int]:
    """Return the parameters that a function does not read, with their places, -1 for those that are passed by name."""
    if (function := _function(name, statements)) is None:
        return {}
    own = {n.id for statement in function.body for n in ast.walk(statement) if isinstance(n, ast.Name)}
    order = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][name.endswith(INIT) :]
    places = {**{of: place for place, of in enumerate(order)}, **{a.arg: -1 for a in function.args.kwonlyargs}}
    return {of: place for of, place in places.items() if of not in own}


def _without_effects(
    unread: dict[str, dict[str, int]], parts: Parts, only_looks: Callable[[ast.AST | None], bool]
) -> dict[str, dict[str, int]]:
    """Return the parameters in `unread` whose arguments have no effect but their value, in all calls."""
    nodes = (node for statements in parts.values() for statement in statements for node in ast.walk(statement))
    kept = {name: dict(of) for name, of in unread.items()}
    for node in nodes:
        if isinstance(node, ast.Call) and (names := kept.get(getattr(node.func, "id", ""))):
            given = dict(enumerate(node.args))
            by_name = {keyword.arg: keyword.value for keyword in node.keywords}
            for name, place in [*names.items()]:
                value = by_name.get(name, given.get(place))
                if value is not None and not only_looks(value):
                    del names[name]
    return {name: of for name, of in kept.items() if of}


class _Pruned(ast.NodeTransformer):
    """Takes parameters out of functions and their calls, and stores to attributes that nothing reads."""

    def __init__(
        self, unread: Mapping[str, dict[str, int]], read: set[str], only_looks: Callable[[ast.AST | None], bool]
    ):
        self.unread, self.read, self.only_looks, self.changes = unread, read, only_looks, 0

    def part(self, name: str, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Return the statements of a part, the same list if nothing of it goes."""
        if not any(self._concerns(node) for statement in statements for node in ast.walk(statement)) and (
            name.removesuffix(INIT) not in self.unread or _function(name, statements) is None
        ):
            return statements
        self.changes = 0
        new = [kept for kept in (self.visit(copy.deepcopy(node)) for node in statements) if kept is not None]
        function = _function(name, new)
        if function is not None and (names := self.unread.get(name.removesuffix(INIT))):
            self.changes += _without(function.args, names)
        return new if self.changes else statements

    def _concerns(self, node: ast.AST) -> bool:
        return (isinstance(node, ast.Call) and getattr(node.func, "id", "") in self.unread) or (
            isinstance(node, ast.Assign) and self._is_unread(node)
        )

    def _is_unread(self, node: ast.Assign) -> bool:
        target = node.targets[0]
        is_own = isinstance(target, ast.Attribute) and getattr(target.value, "id", "") == "self"
        return len(node.targets) == 1 and is_own and target.attr not in self.read and self.only_looks(node.value)  # type: ignore[attr-defined]

    def visit_Assign(self, node: ast.Assign) -> ast.stmt | None:
        self.generic_visit(node)
        if self._is_unread(node):
            self.changes += 1
            return None
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        names = self.unread.get(getattr(node.func, "id", ""), {})
        if names and not any(isinstance(argument, ast.Starred) for argument in node.args):
            places = {place for place in names.values() if place >= 0}
            args = [argument for place, argument in enumerate(node.args) if place not in places]
            keywords = [keyword for keyword in node.keywords if keyword.arg not in names]
            self.changes += (len(args), len(keywords)) != (len(node.args), len(node.keywords))
            node.args, node.keywords = args, keywords
        return node


def _without(taken: ast.arguments, names: Mapping[str, int]) -> int:
    """Take parameters out of a signature, in place, and return how many."""
    positional = [*taken.posonlyargs, *taken.args]
    free = len(positional) - len(taken.defaults)
    kept = [(of, place) for place, of in enumerate(positional) if of.arg not in names]
    gone = len(positional) - len(kept)
    taken.defaults = [taken.defaults[place - free] for _, place in kept if place >= free]
    taken.posonlyargs, taken.args = [], [of for of, _ in kept]
    pairs = [p for p in zip(taken.kwonlyargs, taken.kw_defaults, strict=True) if p[0].arg not in names]
    gone += len(taken.kwonlyargs) - len(pairs)
    taken.kwonlyargs, taken.kw_defaults = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return gone
