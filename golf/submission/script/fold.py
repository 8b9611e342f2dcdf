"""Cutting of branches that a fixed configuration never takes."""

from __future__ import annotations

import ast
import dataclasses
from collections import defaultdict
from typing import Any

from golf.submission.script.constants import METHODS, one_valued
from golf.submission.script.evaluation import NOTHING, SCALARS, UNKNOWN, Facts, Path, Scope, assignments
from golf.submission.script.flat import Flat
from golf.submission.script.slots import READERS, name_functions_of_slots, set_by_constructor
from golf.submission.script.syntax import is_docstring, walk

# A script is made for GPUs, so the functions that are faster on a CPU only are not worth their bytes.
NEVER_TRUE = ("suits_eager_cpu", "attends_in_float32")
IDENTITIES = ((ast.Add, b""), (ast.Sub, 0), (ast.Mult, 1))  # operations with a second operand that changes nothing
NO_LISTS = ast.Call | ast.Attribute | ast.Tuple  # expressions that `visit_Call` writes as what they are
ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def fold(flat: Flat, facts: Facts) -> None:
    """Cut the branches of `flat` in place that `facts` and what the program itself tells decide."""
    # Code that this pass leaves unreached may change settings: without it, the next pass knows more of them.
    facts = _with_changes(flat, facts)
    for node in flat.statements():
        if isinstance(node, ast.FunctionDef) and isinstance(node.returns, ast.Name) and node.returns.id in facts.groups:
            facts.makers[node.name] = facts.groups[node.returns.id]
    facts.attributes = _groups_held(flat, facts)
    facts.given = one_valued([node for statement in flat.statements() for node in walk(statement)])
    facts.results = {**_results(flat, facts), **dict.fromkeys(NEVER_TRUE, False), **facts.answers}
    name_functions_of_slots(flat, facts)
    defined = [node for statement in flat.statements() for node in walk(statement) if isinstance(node, ast.FunctionDef)]
    acting = {f.name for f in defined if not all(is_docstring(part) or isinstance(part, ast.Pass) for part in f.body)}
    facts.idle = {f.name for f in defined} - acting
    classes = (node for node in flat.statements() if isinstance(node, ast.ClassDef))
    facts.idle |= {node.name for node in classes if "NamedTuple" in map(ast.unparse, node.bases)}
    # A second pass would gain only from functions that the first one reduced to a return; none decides a branch.
    folder = _Folder(facts)
    for statement in flat.statements():
        folder.visit(statement)
        flat.changed(statement)


def _groups_held(flat: Flat, facts: Facts) -> dict[tuple[str, str], Path]:
    """Return (class, attribute) → the group of settings that a field or the constructor puts there."""
    classes = [node for node in flat.statements() if isinstance(node, ast.ClassDef)]
    found = {}
    for node in classes:
        for part in node.body:
            kind = ast.unparse(part.annotation) if isinstance(part, ast.AnnAssign) else ""
            if kind in facts.groups and node.name not in facts.groups:
                found[node.name, ast.unparse(part.target)] = facts.groups[kind]  # type: ignore[attr-defined]
        for name, value, scope in set_by_constructor(node, facts):
            if (path := scope.path(value)) is not None:
                found[node.name, name] = path
    for node in classes:
        for base in map(ast.unparse, node.bases):
            found |= {(node.name, name): path for (owner, name), path in found.items() if owner == base}
    return found


def _with_changes(flat: Flat, facts: Facts) -> Facts:
    """Return `facts` with the values that the program may give settings, by assignment or by `dataclasses.replace`."""
    new_values: list[tuple[str, ast.expr]] = []
    for statement in flat.statements():
        for node in walk(statement):
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

    def __init__(self, facts: Facts):
        self.scope = Scope(facts)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._inside(Scope(self.scope.facts, node.name), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._inside(self.scope.enter(node), node)
        self._drop_unread(node)
        _end_at_return(node)
        return node

    def _drop_unread(self, function: ast.FunctionDef) -> None:
        """Drop the locals of `function` that nothing reads and whose value has no side effect."""
        nodes = list(walk(function))
        read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        read |= {ast.unparse(node.target) for node in nodes if isinstance(node, ast.AugAssign)}
        read |= {name for node in nodes if isinstance(node, ast.Nonlocal | ast.Global) for name in node.names}
        for node in nodes:
            for name in () if isinstance(node, ast.ClassDef) else ("body", "orelse"):
                if isinstance(body := getattr(node, name, None), list):
                    body[:] = [part for part in body if not self._is_unread(part, read)]

    def _is_unread(self, node: ast.stmt, read: set[str]) -> bool:
        if not isinstance(node, ast.Assign) or any(not isinstance(t, ast.Name) or t.id in read for t in node.targets):
            return False
        calls = [part for part in walk(node.value) if isinstance(part, ast.Call)]
        return not calls or (calls[0] is node.value and ast.unparse(calls[0].func) in self.scope.facts.idle)

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
        is_idle = getattr(called, "attr", getattr(called, "id", "")) in self.scope.facts.idle
        return None if is_idle else self.generic_visit(node)

    def visit_For(self, node: ast.For) -> ast.AST | None:
        self.generic_visit(node)
        over = node.iter
        # `in_order(hooks)`, `list(hooks)` and the like loop over nothing if there are no hooks.
        if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id in READERS and over.args:
            over = over.args[0]
        return None if self.scope.value(over) == () or not node.body else node

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
        if not isinstance(node.ctx, ast.Load) or not self._is_nothing(node):
            return node
        return _written(self.scope.values[node.id])

    def _is_nothing(self, node: ast.expr) -> bool:
        """Tell whether `node` is a local with one value, which says that something is not there."""
        return isinstance(node, ast.Name) and self.scope.values.get(node.id, UNKNOWN) in NOTHING

    def _is_held(self, to: ast.Attribute, value: ast.expr) -> bool:
        held = self.scope.facts.held
        return to.attr in held and ast.unparse(to.value) == "self" and self.scope.value(value) is held[to.attr]

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        self.generic_visit(node)
        pairs = list(assignments(node))
        # `x = f(x) if cfg.on else x` has become `x = x`.
        same = [to for to, value in pairs if isinstance(value, ast.Name) and value.id == ast.unparse(to)]
        # What an attribute always holds stands where it is read.
        held = [to for to, value in pairs if isinstance(to, ast.Attribute) and self._is_held(to, value)]
        kept = [(to, value) for to, value in pairs if to not in [*same, *held] and not self._is_nothing(to)]
        if len(kept) < len(pairs) == len(getattr(node.value, "elts", ())) and len(node.targets) == 1 and kept:
            targets, values = ([pair[i] for pair in kept] for i in (0, 1))
            node.targets = targets if len(kept) == 1 else [ast.Tuple(targets, ast.Store())]
            node.value = values[0] if len(kept) == 1 else ast.Tuple(values, ast.Load())
        return node if kept else None

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        is_alias = isinstance(node.value, ast.Name) and ast.unparse(node.target) == node.value.id
        if is_alias or self._is_nothing(node.target):
            return None
        is_held = isinstance(node.target, ast.Attribute) and node.value and self._is_held(node.target, node.value)
        return None if is_held else self.generic_visit(node)

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
    for node in walk(function):
        for name in ("body", "orelse"):
            body = getattr(node, name, None)
            if not isinstance(body, list):
                continue
            end = next((i + 1 for i, part in enumerate(body) if isinstance(part, ENDS)), len(body))
            del body[end:]
            if name == "body" and not body:
                body.append(ast.Pass())
