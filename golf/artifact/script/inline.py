"""Functions that do one short thing for one caller, put into that caller, so that a reader has not to look them up."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping

from golf.artifact.script.flat import Flat
from golf.artifact.script.functions import Function, functions_of
from golf.artifact.script.syntax import is_docstring, is_simple, parameters, walk

LONGEST = 80  # characters of an expression that may stand in the place of a call


def inline(flat: Flat) -> bool:
    """Replace, in place, the only use of a function or property that only returns a short expression. Tell if any was.

    What stands in a function that has been put into another one is left for the next call.
    """
    found = [(f, value) for f in functions_of(flat) if len(f.uses) == 1 and (value := _as_lambda(f))]
    # A property is used without a call.
    short = {id((f.calls or f.uses)[0]): value for f, value in found}
    return sum(_Inliner(flat, statement, short).count for statement in flat.statements()) > 0


def _as_lambda(function: Function) -> ast.Lambda | None:
    """Return a function that only returns a short expression, without a comment that explains it, as a lambda."""
    *before, last = function.node.body
    value, args = last.value if isinstance(last, ast.Return) else None, function.node.args
    is_plain = [*map(ast.unparse, function.node.decorator_list)] == ([] if function.calls else ["property"])
    is_plain &= not (args.vararg or args.kwarg or getattr(last, "above", None))
    # A lambda or generator would read its caller's locals when it runs, and they may have changed by then.
    is_plain &= not any(isinstance(node, ast.Lambda | ast.GeneratorExp) for node in walk(last))
    is_short = value is not None and all(map(is_docstring, before)) and len(ast.unparse(value)) <= LONGEST
    return ast.Lambda(args, value) if value and is_plain and is_short else None


class _Inliner(ast.NodeTransformer):
    """A pass over one top-level statement."""

    def __init__(self, flat: Flat, statement: ast.stmt, short: Mapping[int, ast.Lambda]):
        self.short, self.count = short, 0
        self.given: Mapping[str, ast.expr] = {}  # name → what takes its place
        self.locals = _bound(statement)
        self.visit(statement)
        flat.changed(statement)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if id(node) not in self.short:
            return node
        owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return self._inlined(node, [*owner, *node.args], {str(k.arg): k.value for k in node.keywords})

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        return self._inlined(node, [node.value], {}) if id(node) in self.short else node

    def _inlined(self, use: ast.expr, args: list[ast.expr], by_name: dict[str, ast.expr]) -> ast.AST:
        function = copy.deepcopy(self.short[id(use)])
        value, names = function.body, [a.arg for a in parameters(function)]
        given = dict(zip(names, args, strict=False)) | by_name
        own = {n.id for n in walk(value) if isinstance(n, ast.Name)} - set(names)
        given_names = {n.id for arg in given.values() for n in walk(arg) if isinstance(n, ast.Name)} | set(names)
        # Arguments may be read several times, or in another place than before.
        is_plain = all(map(is_simple, given.values())) and given.keys() == set(names)
        if not is_plain or own & self.locals or _bound(value) & given_names:
            return use
        self.count, self.given = self.count + 1, given
        result, self.given = self.visit(value), {}
        return result

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self.given[node.id]) if node.id in self.given else node


def _bound(node: ast.AST) -> set[str]:
    """Return the names that are bound anywhere in `node`."""
    stored = {n.id for n in walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    return stored | {n.arg for n in walk(node) if isinstance(n, ast.arg)}
