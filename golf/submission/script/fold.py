"""Cutting of branches that a fixed configuration never takes."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections import defaultdict
from typing import Any

from golf.submission.script.evaluation import NOTHING, SCALARS, UNKNOWN, Facts, Path, Scope, assignments
from golf.submission.script.flat import Flat
from golf.submission.script.slots import METHODS, READERS, held_by_slots, never_given, set_in
from golf.submission.script.syntax import is_docstring

NO_LISTS = ast.Call | ast.Attribute | ast.Tuple  # expressions that `visit_Call` writes as what they are
LONGEST = 100  # characters of a raise that may stay as it is
ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def fold(flat: Flat, facts: Facts) -> None:
    """Cut the branches of `flat` in place that `facts` and what the program itself tells decide."""
    # Code that this pass leaves unreached may change settings: without it, the next pass knows more of them.
    facts = _with_changes(flat, facts)
    defined = [node for node in flat.nodes() if isinstance(node, ast.FunctionDef)]
    functions = [node for node in flat.statements() if isinstance(node, ast.FunctionDef)]
    returned = {node.name: ast.unparse(node.returns) for node in functions if node.returns}
    facts.makers = {name: facts.groups[kind] for name, kind in returned.items() if kind in facts.groups}
    facts.attributes = _groups_held(flat, facts)
    facts.given = never_given(flat.nodes())
    facts.results = {**_results(flat, facts), **facts.results}
    facts.held |= held_by_slots(flat, facts)
    acting = {f.name for f in defined if not all(is_docstring(part) or isinstance(part, ast.Pass) for part in f.body)}
    classes = [node for node in flat.statements() if isinstance(node, ast.ClassDef)]
    tuples = {node.name for node in classes if "NamedTuple" in map(ast.unparse, node.bases)}
    # A second pass would gain only from functions that the first one reduced to a return; none decides a branch.
    folder = _Folder(facts, tuples | {f.name for f in defined} - acting)
    for statement in flat.statements():
        folder.visit(statement)
        flat.changed(statement)


def _groups_held(flat: Flat, facts: Facts) -> dict[tuple[str, str], Path]:
    """Return (class, attribute) → the group of settings that a field or every assignment to it puts there."""
    classes = [node for node in flat.statements() if isinstance(node, ast.ClassDef)]
    held: dict[tuple[str, str], list[Path | None]] = defaultdict(list)
    for node in classes:
        for part in node.body if node.name not in facts.groups else ():
            if isinstance(part, ast.AnnAssign) and (kind := ast.unparse(part.annotation)) in facts.groups:
                held[node.name, ast.unparse(part.target)].append(facts.groups[kind])
        for name, value, scope in set_in(node, facts):
            held[node.name, name].append(scope.path(value))
    found = {key: first for key, (first, *others) in held.items() if first is not None and {*others} <= {first}}
    for node in classes:
        for base in map(ast.unparse, node.bases):
            found |= {(node.name, name): path for (owner, name), path in found.items() if owner == base}
    return found


def _with_changes(flat: Flat, facts: Facts) -> Facts:
    """Return `facts` with the values that the program may give settings, by assignment or by `dataclasses.replace`."""
    new_values: list[tuple[str, ast.expr]] = []
    for node in flat.nodes():
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("dataclasses.replace", "replace"):
            new_values += [(keyword.arg or "", keyword.value) for keyword in node.keywords]
        set_here = ((to, value) for to, value in assignments(node) if isinstance(to, ast.Attribute))
        new_values += [(to.attr, value) for to, value in set_here if ast.unparse(to.value) != "self"]
    given = [(name, Scope(Facts({}, {})).value(value)) for name, value in new_values]
    values = {path: [*own, *(new for name, new in given if name == path[-1])] for path, own in facts.values.items()}
    return dataclasses.replace(facts, values=values)


def _results(flat: Flat, facts: Facts) -> dict[str, Any]:
    """Return function → value for functions that do nothing but return one known value, such as `uses_gptq`.

    A method has a dot before its name. Two methods of one name are left out.
    """
    found: dict[str, list[Any]] = defaultdict(list)
    for node in flat.statements():
        owner = node.name if isinstance(node, ast.ClassDef) else ""
        for function in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(function, ast.FunctionDef):
                body = [part for part in function.body if not is_docstring(part)]
                returned = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None
                value = Scope(facts, owner).enter(function).value(returned) if returned else UNKNOWN
                # A tuple stands for lists and sets in `value`.
                is_known = isinstance(value, SCALARS) or (value == () and isinstance(returned, NO_LISTS))
                found[f".{function.name}" if owner else function.name].append(value if is_known else UNKNOWN)
    known = {name: first for name, (first, *others) in found.items() if not others and first is not UNKNOWN}
    return {name: value for name, value in known.items() if name not in METHODS}


class _Folder(ast.NodeTransformer):
    """A pass over top-level statements that cuts in place."""

    def __init__(self, facts: Facts, idle: set[str]):
        self.scope, self.idle = Scope(facts), idle  # what does nothing if it is called

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._inside(Scope(self.scope.facts, node.name), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._inside(self.scope.enter(node), node)
        _end_at_return(node)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return self._inside(self.scope.enter(node), node)

    def _inside(self, scope: Scope, node: ast.AST) -> ast.AST:
        outer, self.scope = self.scope, scope
        self.generic_visit(node)
        self.scope = outer
        return node

    def visit_If(self, node: ast.If) -> Any:
        node.test = self._simplified(node.test, is_test=True)
        value = self.scope.value(node.test)
        self.generic_visit(node)
        if value is UNKNOWN:
            return node if any(not isinstance(part, ast.Pass) for part in (*node.body, *node.orelse)) else None
        return [part for part in (node.body if value else node.orelse) if not isinstance(part, ast.Pass)] or None

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        called = node.value.func if isinstance(node.value, ast.Call) else node
        is_idle = getattr(called, "attr", getattr(called, "id", "")) in self.idle
        return None if is_idle else self.generic_visit(node)

    def visit_For(self, node: ast.For) -> ast.AST | None:
        self.generic_visit(node)
        over = node.iter
        # `in_order(hooks)`, `list(hooks)` and the like loop over nothing if there are no hooks.
        if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id in READERS and over.args:
            over = over.args[0]
        return None if self.scope.value(over) == () or not node.body else node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call) and len(ast.unparse(node)) > LONGEST:
            node.exc.args = [_sentence(arg) for arg in node.exc.args]
        return self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        node.test = self._simplified(node.test, is_test=True)
        if (value := self.scope.value(node.test)) is UNKNOWN:
            return self.generic_visit(node)
        return self.visit(node.body if value else node.orelse)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        return self._simplified(node)

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        node.ifs = [test for test in node.ifs if self.scope.value(test) is not True]
        return self.generic_visit(node)

    def visit_Call(self, node: ast.expr) -> ast.AST:
        # What settings alone decide, `not masked` or `kind == "fa3"` as well, is written as what it is.
        value = self.scope.value(node)
        return self.generic_visit(node) if value is UNKNOWN else _written(value)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        is_held = isinstance(node.ctx, ast.Load) and node.attr in self.scope.facts.held
        return self.visit_Call(node) if is_held else self.generic_visit(node)

    visit_Compare = visit_UnaryOp = visit_Call  # noqa: N815

    def visit_Name(self, node: ast.Name) -> ast.AST:
        is_known = isinstance(node.ctx, ast.Load) and self._is_known(node, node)
        return _written(self.scope.values[node.id]) if is_known else node

    def _is_known(self, to: ast.expr, value: ast.expr) -> bool:
        """Tell whether `to` needs no `value`, because what it holds stands where it is read, or nothing reads it."""
        if isinstance(to, ast.Attribute):
            held = self.scope.facts.held.get(to.attr, UNKNOWN)
            return held is not UNKNOWN and ast.unparse(to.value) == "self" and self.scope.value(value) is held
        is_set = isinstance(to, ast.Name) and isinstance(to.ctx, ast.Store)
        # `x = f(x) if cfg.on else x` has become `x = x`.
        if is_set and isinstance(value, ast.Name) and value.id == ast.unparse(to):
            return True
        if is_set and ast.unparse(to) in self.scope.unread:
            calls = [part for part in ast.walk(value) if isinstance(part, ast.Call)]
            return not calls or (calls[0] is value and ast.unparse(calls[0].func) in self.idle)
        return isinstance(to, ast.Name) and self.scope.values.get(to.id, UNKNOWN) in NOTHING

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        self.generic_visit(node)
        pairs = list(assignments(node))
        kept = [(to, value) for to, value in pairs if not self._is_known(to, value)]
        if len(kept) < len(pairs) == len(getattr(node.value, "elts", ())) and len(node.targets) == 1 and kept:
            targets, values = ([pair[i] for pair in kept] for i in (0, 1))
            node.targets = targets if len(kept) == 1 else [ast.Tuple(targets, ast.Store())]
            node.value = values[0] if len(kept) == 1 else ast.Tuple(values, ast.Load())
        return node if kept else None

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        return None if node.value and self._is_known(node.target, node.value) else self.generic_visit(node)

    def _simplified(self, node: ast.expr, is_test: bool = False) -> ast.expr:
        """Return an `and` or `or` without the operands that cannot decide it. Only the truth of a test matters."""
        if not isinstance(node, ast.BoolOp):
            return node
        node.values = [self._simplified(operand, is_test) for operand in node.values]
        stops = isinstance(node.op, ast.Or)
        kept: list[ast.expr] = []
        for i, operand in enumerate(node.values):
            value = self.scope.value(operand)
            is_last = i == len(node.values) - 1 and (not is_test or not kept)
            if value is UNKNOWN or bool(value) == stops or is_last:
                kept.append(operand)
            if value is not UNKNOWN and bool(value) == stops:
                break
        node.values = kept
        return node if len(kept) > 1 else kept[0]


def _written(value: Any) -> ast.expr:
    return ast.Tuple([], ast.Load()) if value == () else ast.Constant(value)


def _end_at_return(function: ast.FunctionDef) -> None:
    """Drop what stands behind a return in `function`, and put `pass` where nothing is left."""
    for node in ast.walk(function):
        for name in ("body", "orelse"):
            if isinstance(body := getattr(node, name, None), list):
                del body[next((i + 1 for i, part in enumerate(body) if isinstance(part, ENDS)), len(body)) :]
                body += [ast.Pass()] if name == "body" and not body else []


def _sentence(text: ast.expr) -> ast.expr:
    """Return the text of an error up to its first colon or semicolon, behind which the framework's advice follows."""
    for i, part in enumerate(text.values if isinstance(text, ast.JoinedStr) else [text]):
        value = part.value if isinstance(part, ast.Constant) else None
        if isinstance(value, str) and (found := re.search(r"[:;] ", value)):
            end = ast.Constant(value[: found.start()] + ".")
            return ast.JoinedStr([*text.values[:i], end]) if isinstance(text, ast.JoinedStr) else end
    return text
