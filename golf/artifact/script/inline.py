"""Functions that do one short thing for one caller, put into that caller, so that a reader has not to look them up."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Mapping

from golf.artifact.script.flat import Flat
from golf.artifact.script.syntax import is_docstring, parameters, walk

LONGEST = 80  # characters of an expression that may stand in the place of a call


def inline(flat: Flat) -> None:
    """Replace, in place, the only call of a function that does nothing but return a short expression."""
    has_changed = True
    while has_changed:
        used = Counter(name.id for node in flat.statements() for name in flat.uses(node).names)
        functions = (node for node in flat.statements() if isinstance(node, ast.FunctionDef))
        short = {f.name: value for f in functions if used[f.name] == 1 and (value := _as_lambda(f))}
        has_changed = sum(_Inliner(flat, statement, short).count for statement in flat.statements()) > 0


def _as_lambda(function: ast.FunctionDef) -> ast.Lambda | None:
    """Return a function that only returns a short expression, without a comment that explains it, as a lambda."""
    *before, last = function.body
    value, args = last.value if isinstance(last, ast.Return) else None, function.args
    is_plain = not (function.decorator_list or args.vararg or args.kwarg or getattr(last, "above", None))
    is_short = value is not None and all(map(is_docstring, before)) and len(ast.unparse(value)) <= LONGEST
    return ast.Lambda(args, value) if value and is_plain and is_short else None


class _Inliner(ast.NodeTransformer):
    """A pass over one top-level statement."""

    def __init__(self, flat: Flat, statement: ast.stmt, short: Mapping[str, ast.Lambda]):
        self.short, self.count = short, 0
        self.given: Mapping[str, ast.expr] = {}  # name → what takes its place
        self.globals, self.locals = {id(name) for name in flat.uses(statement).names}, _bound(statement)
        self.visit(statement)
        flat.changed(statement)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.func, ast.Name) or node.func.id not in self.short or id(node.func) not in self.globals:
            return node
        function = copy.deepcopy(self.short[node.func.id])
        value, names = function.body, [a.arg for a in parameters(function)]
        given = dict(zip(names, node.args, strict=False)) | {str(k.arg): k.value for k in node.keywords}
        parts = [n for arg in given.values() for n in walk(arg)]
        # Arguments may be read several times, or in another place than before.
        is_simple = all(isinstance(n, ast.Name | ast.Attribute | ast.Constant) for n in parts)
        own = {n.id for n in walk(value) if isinstance(n, ast.Name)} - set(names)
        given_names = {n.id for n in parts if isinstance(n, ast.Name)} | set(names)
        if not is_simple or given.keys() != set(names) or own & self.locals or _bound(value) & given_names:
            return node
        self.count, self.given = self.count + 1, given
        result, self.given = self.visit(value), {}
        return result

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self.given[node.id]) if node.id in self.given else node


def _bound(node: ast.AST) -> set[str]:
    """Return the names that are bound anywhere in `node`."""
    stored = {n.id for n in walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    return stored | {n.arg for n in walk(node) if isinstance(n, ast.arg)}
