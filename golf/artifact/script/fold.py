"""Branches that a fixed configuration never takes are cut, as far as `facts` can tell."""

from __future__ import annotations

import ast
import copy
from typing import Any

from golf.artifact.script.attributes import fixed, groups_held, never_passed
from golf.artifact.script.calls import OMITTED, Callee, callee_name, callees
from golf.artifact.script.facts import SCALARS, UNKNOWN, Facts, Scope
from golf.artifact.script.flat import Flat
from golf.artifact.script.known import changed_settings, literals, results
from golf.artifact.script.scopes import parameters, walk
from golf.artifact.script.shake import drop_unreached, is_plain

NOTHINGS = {  # what builtins make of an empty iterator
    "next": ast.Constant(None),
    "sum": ast.Constant(0),
    "tuple": ast.Tuple([], ast.Load()),
    "list": ast.List([], ast.Load()),
    "any": ast.Constant(False),
    "all": ast.Constant(True),
}
ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def fold(flat: Flat, facts: Facts, kind: type[Folder] | None = None) -> None:
    """Cut in place, until nothing more is known."""
    for node in flat.statements():
        if isinstance(node, ast.FunctionDef) and isinstance(node.returns, ast.Name) and node.returns.id in facts.groups:
            facts.makers[node.name] = facts.groups[node.returns.id]
    facts.literals = literals(flat)
    facts.attributes.update(groups_held(flat, facts))
    facts.open |= changed_settings(flat, facts)
    while True:
        drop_unreached(flat)
        folder = (kind or Folder)(facts, callees(flat))
        for statement in flat.statements():
            folder.visit(statement)
            if folder.changed:
                flat.changed(statement)
                folder.changed = False
        known = folder.constants(), results(flat, facts), {**never_passed(flat), **fixed(flat, facts)}
        if known == (facts.constants, facts.results, facts.fixed):
            return
        facts.constants, facts.results, facts.fixed = known


class Folder(ast.NodeTransformer):
    """One pass; collects what calls pass on the way."""

    def __init__(self, facts: Facts, callees: dict[str, Callee]):
        self.scope = Scope(facts)
        self.changed = False
        self.callees, self.depth = callees, 0  # depth: functions around the current place
        self.passed: dict[tuple[str, str], list[Any]] = {}  # (function, parameter) → values

    def constants(self) -> dict[tuple[str, str], Any]:
        """Parameters to which every call passes one known value."""
        found = {}
        for (name, parameter), values in self.passed.items():
            first = values[0]
            same = all(type(v) is type(first) and v == first for v in values)
            if first is not UNKNOWN and same and name in self.callees:
                found[name, parameter] = first
        return found

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        outer, self.scope = (self.scope, self.depth), Scope(self.scope.facts, node.name)
        self.depth = 0
        self.generic_visit(node)
        self.scope, self.depth = outer
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        outer = self.scope
        self.scope = outer.enter(node, self._callee_name(node))
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1
        if self.changed:
            _end_at_return(node)
        self.scope = outer
        return node

    def _callee_name(self, node: ast.FunctionDef) -> str:
        """The key of `callees` for a function at this place."""
        if self.depth:
            return ""
        if not self.scope.class_name:
            return node.name
        return self.scope.class_name if node.name == "__init__" else f".{node.name}"

    def visit_If(self, node: ast.If) -> Any:
        node.test = self._simplified(node.test, is_test=True)
        value = self.scope.value(node.test)
        self.generic_visit(node)
        if value is UNKNOWN:
            return node
        self.changed = True
        kept = node.body if value else node.orelse
        return [n for n in kept if not isinstance(n, ast.Pass)] or None

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        node.test = self._simplified(node.test, is_test=True)
        value = self.scope.value(node.test)
        if value is UNKNOWN:
            return self.generic_visit(node)
        self.changed = True
        return self.visit(node.body if value else node.orelse)

    def visit_Assert(self, node: ast.Assert) -> ast.AST | None:
        if self.scope.value(node.test) is UNKNOWN:
            return self.generic_visit(node)
        self.changed = True
        return None

    def visit_For(self, node: ast.For) -> ast.AST | None:
        if not self._is_empty(node.iter):
            return self.generic_visit(node)
        self.changed = True
        return None

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        return self._comprehension(node, ast.List([], ast.Load()))

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        return self._comprehension(node, ast.Call(ast.Name("iter", ast.Load()), [ast.Tuple([], ast.Load())], []))

    def visit_DictComp(self, node: ast.DictComp) -> ast.AST:
        return self._comprehension(node, ast.Dict([], []))

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp, empty: ast.expr) -> ast.AST:
        conditions = [condition for generator in node.generators for condition in generator.ifs]
        never = any(value is not UNKNOWN and not value for value in map(self.scope.value, conditions))
        if not never and not any(self._is_empty(generator.iter) for generator in node.generators):
            return self.generic_visit(node)
        self.changed = True
        return empty

    def _is_empty(self, node: ast.expr) -> bool:
        value = self.scope.value(node)
        return isinstance(value, tuple | list | dict) and not value

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        self.generic_visit(node)
        node.values = [_as_text(part) for part in node.values]
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        return self._simplified(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if (known := _of_nothing(node)) is not None:
            return known
        if callee := self.callees.get(callee_name(node)):
            bound = callee.bind(node)
            for name in (a.arg for a in parameters(callee.function)):
                passed = UNKNOWN if bound is None else bound.get(name, UNKNOWN)
                if passed is OMITTED:
                    passed = callee.default(name) or UNKNOWN
                value = self.scope.value(passed) if isinstance(passed, ast.expr) else UNKNOWN
                key = callee_name(node), name
                self.passed.setdefault(key, []).append(value)
        return self._result(node) or node

    def _result(self, node: ast.Call) -> ast.expr | None:
        """What a function returns that does nothing else and is given nothing that does."""
        known = self.scope.facts.results.get(node.func.id, UNKNOWN) if isinstance(node.func, ast.Name) else UNKNOWN
        passed = [*node.args, *(keyword.value for keyword in node.keywords)]
        if known is UNKNOWN or not isinstance(known, SCALARS) or not all(map(is_plain, passed)):
            return None
        self.changed = True
        return ast.Constant(known)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        was_call = isinstance(node.value, ast.Call)
        self.generic_visit(node)
        return None if was_call and isinstance(node.value, ast.Constant) else node

    def _simplified(self, node: ast.expr, is_test: bool = False) -> ast.expr:
        """An `and` or `or` without the operands that cannot decide it. Of a test only the truth matters."""
        if not isinstance(node, ast.BoolOp):
            return node
        node.values = [self._simplified(v, is_test) for v in node.values]
        stops = isinstance(node.op, ast.Or)
        kept: list[ast.expr] = []
        for i, operand in enumerate(node.values):
            value = self.scope.value(operand)
            is_last = i == len(node.values) - 1 and (not is_test or not kept)
            if value is UNKNOWN or bool(value) == stops or is_last:
                kept.append(operand)
            if value is not UNKNOWN and bool(value) == stops:
                break
        self.changed |= len(kept) < len(node.values)
        node.values = kept
        return node if len(kept) > 1 else kept[0]


def _as_text(part: ast.expr) -> ast.expr:
    """A constant in braces as a part of the string around it."""
    plain = isinstance(part, ast.FormattedValue) and part.conversion == -1 and part.format_spec is None
    if plain and isinstance(part.value, ast.Constant):  # type: ignore[attr-defined]
        return ast.Constant(str(part.value.value))  # type: ignore[attr-defined]
    return part


def _of_nothing(node: ast.Call) -> ast.expr | None:
    """What a call of a builtin gives whose argument is an iterator over nothing."""
    called = node.func.id if isinstance(node.func, ast.Name) else ""
    if called not in NOTHINGS or not node.args or ast.unparse(node.args[0]) != "iter(())":
        return None
    if called == "next":
        return node.args[1] if len(node.args) == 2 else None
    return copy.deepcopy(NOTHINGS[called]) if len(node.args) == 1 else None


def _end_at_return(node: ast.AST) -> None:
    """Drop what stands behind a return, and put `pass` where nothing is left."""
    for inner in walk(node):
        for name in ("body", "orelse"):
            body = getattr(inner, name, None)
            if not isinstance(body, list):
                continue
            end = next((i + 1 for i, n in enumerate(body) if isinstance(n, ENDS)), len(body))
            del body[end:]
            if name == "body" and not body:
                body.append(ast.Pass())
