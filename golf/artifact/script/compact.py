"""What makes the wrapped form smaller than the readable one, with the same program: values in place of settings, and
arguments by position, whose names then do not matter."""

from __future__ import annotations

import ast
import copy
from typing import Any

from golf.artifact.script.calls import OMITTED, Callee, callee_name, callees
from golf.artifact.script.facts import SCALARS, UNKNOWN, Facts
from golf.artifact.script.flat import Flat
from golf.artifact.script.fold import Folder, fold
from golf.artifact.script.scopes import parameters, walk


def inline_settings(flat: Flat, facts: Facts) -> None:
    """Write known settings and arguments as their values, in place."""
    fold(flat, facts, Inliner)


class Inliner(Folder):
    """Also replaces what is known where it is not a condition."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:  # noqa: N802 (ast names it)
        return self._inlined(node) or self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:  # noqa: N802
        return self._inlined(node) or node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:  # noqa: N802
        return self._inlined(node) or self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:  # noqa: N802
        return self._inlined(node) or self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:  # noqa: N802
        """A message says what is wrong; advice behind the colon is for readers, who have the readable form."""
        self.generic_visit(node)
        for part in ast.walk(node.exc) if node.exc else ():
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                self.changed |= ": " in part.value
                part.value = part.value.partition(": ")[0]
            if isinstance(part, ast.JoinedStr):
                ends = [
                    i + 1 for i, p in enumerate(part.values) if isinstance(p, ast.Constant) and ": " in str(p.value)
                ]
                del part.values[(ends or [len(part.values)])[0] :]
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        node.value = self.visit(node.value)
        return node

    def _inlined(self, node: ast.expr) -> ast.AST | None:
        if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            return None
        value: Any = self.scope.value(node)
        if value is UNKNOWN or not isinstance(value, SCALARS):
            return None
        self.changed = True
        return ast.parse(repr(value), mode="eval").body


def pass_by_position(flat: Flat) -> None:
    """Turn keyword arguments into positional ones where all calls of a function are seen, in place."""
    found = callees(flat)
    calls: dict[str, list[ast.Call]] = {}
    for statement in flat.statements():
        for call in flat.uses(statement).calls:
            calls.setdefault(callee_name(call), []).append(call)
    for name, callee in found.items():
        _reorder(callee, calls.get(name, []))
    for statement in flat.statements():
        flat.changed(statement)
    named = {callee_name(call) for own in calls.values() for call in own if call.keywords}
    for statement in flat.statements():
        for function in walk(statement):
            if isinstance(function, ast.FunctionDef) and not named & {function.name, f".{function.name}"}:
                _close(function.args, "__" in function.name)
    for name, callee in found.items():
        if name not in named:
            _close(callee.function.args, False)


def _reorder(callee: Callee, calls: list[ast.Call]) -> None:
    """All arguments of `calls` by position; what cannot be, because a default stands before it, stays."""
    args = callee.function.args
    if args.vararg or args.kwarg or args.posonlyargs:
        return
    bounds = [callee.bind(call) for call in calls]
    if any(bound is None for bound in bounds):
        return
    order = [p.arg for p in parameters(callee.function)[callee.skipped :]]
    order.sort(key=lambda name: callee.default(name) is not None)  # those without a default first
    plans = []
    for bound in bounds:
        assert bound is not None
        values = [bound[name] for name in order]
        while values and values[-1] is OMITTED:
            values.pop()
        filled = [copy.deepcopy(callee.default(n)) if v is OMITTED else v for n, v in zip(order, values, strict=False)]
        if not all(isinstance(v, ast.expr) for v in filled):
            return
        plans.append(filled)
    by_name = {p.arg: p for p in parameters(callee.function)}
    defaults = [d for name in order if (d := callee.default(name)) is not None]
    args.args = [*args.args[: callee.skipped], *(by_name[name] for name in order)]
    args.defaults, args.kwonlyargs, args.kw_defaults = defaults, [], []
    for call, plan in zip(calls, plans, strict=True):
        call.args, call.keywords = plan, []  # type: ignore[assignment]


def _close(args: ast.arguments, is_special: bool) -> None:
    """Positional parameters that cannot be named any more, so that a minifier may rename them."""
    if not is_special and not args.vararg:
        args.posonlyargs, args.args = [*args.posonlyargs, *args.args], []
