"""Cutting of branches that a fixed configuration never takes."""

from __future__ import annotations

import ast
import copy
import dataclasses
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from golf.artifact.script.arguments import Replaced
from golf.artifact.script.evaluation import NOTHING, SCALARS, UNKNOWN, Facts, Path, Scope, assignments
from golf.artifact.script.flat import Flat
from golf.artifact.script.functions import FOREIGN
from golf.artifact.script.syntax import DOTTED, bound_names, is_docstring, walk

# A script is made for GPUs, so the functions that are faster on a CPU only are not worth their bytes. What
# golf.questions says of the framework alone is not in a script either.
NEVER_TRUE = ("suits_eager_cpu", "attends_in_float32", "listens", "proves")
IDENTITIES = ((ast.Add, b""), (ast.Sub, 0), (ast.Mult, 1))  # operations with a second operand that changes nothing
ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def fold(flat: Flat, facts: Facts) -> None:
    """Cut the branches of `flat` in place that `facts` and what the program itself tells decide."""
    # Code that this pass leaves unreached may change settings: without it, the next pass knows more of them.
    facts = _with_changes(flat, facts)
    for node in flat.statements():
        if isinstance(node, ast.FunctionDef) and isinstance(node.returns, ast.Name) and node.returns.id in facts.groups:
            facts.makers[node.name] = facts.groups[node.returns.id]
    facts.attributes = _groups_held(flat, facts)
    facts.results = {**_results(flat, facts), **dict.fromkeys(NEVER_TRUE, False), **facts.answers, **_unused(flat)}
    _name_functions_of_slots(flat, facts)
    defined = [node for statement in flat.statements() for node in walk(statement) if isinstance(node, ast.FunctionDef)]
    acting = {f.name for f in defined if not all(is_docstring(part) or isinstance(part, ast.Pass) for part in f.body)}
    facts.idle = {f.name for f in defined} - acting
    classes = (node for node in flat.statements() if isinstance(node, ast.ClassDef))
    facts.idle |= {node.name for node in classes if "NamedTuple" in map(ast.unparse, node.bases)}
    # A second pass would gain only from functions that the first one reduced to a return; none decides a branch.
    folder = _Folder(facts)
    changing = {
        n for statement in flat.statements() for g in walk(statement) if isinstance(g, ast.Global) for n in g.names
    }
    for statement in flat.statements():
        # A function inside another one may see a name of that change.
        for function in statement.body if isinstance(statement, ast.ClassDef) else [statement]:
            if isinstance(function, ast.FunctionDef):
                aliases = Replaced(_aliases(function, changing))
                function.body = [aliases.visit(part) for part in function.body]
        folder.visit(statement)
        flat.changed(statement)


def _unused(flat: Flat) -> dict[tuple[str, str], bool]:
    """Return ("is_used", slot) → False for every attribute that is read nowhere but where its use is asked for."""
    nodes = [node for statement in flat.statements() for node in walk(statement)]
    calls = (node for node in nodes if isinstance(node, ast.Call))
    asked = Counter(ast.literal_eval(call.args[0]) for call in calls if ast.unparse(call.func) == "is_used")
    named = Counter(node.attr for node in nodes if isinstance(node, ast.Attribute))
    texts = (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    named.update(word for text in texts if DOTTED.fullmatch(text) for word in re.findall(r"\w+", text))
    # A question names the slot and guards one use of it, and a constructor declares it.
    return {("is_used", slot): False for slot, times in asked.items() if named[slot] <= 2 * times + 1}


def _name_functions_of_slots(flat: Flat, facts: Facts) -> None:
    """Call a function by its name where a slot is called that always holds what its constructor puts there."""
    nodes = [node for statement in flat.statements() for node in walk(statement)]
    ours = {node.name for node in flat.statements() if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    filled = [pair for n in nodes if isinstance(n, ast.ClassDef) for pair in _set_by_constructor(n, facts)]
    in_classes = {name for n in nodes if isinstance(n, ast.ClassDef) for name in bound_names(n.body)}
    times = Counter(n.attr for n in nodes if isinstance(n, ast.Attribute) and not isinstance(n.ctx, ast.Load))
    times.update(n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
    once = {name: value for name, value, _ in filled if times[name] == 1}
    # A slot that always holds nothing decides branches.
    # An attribute of a package, of a field or of a method may have the same name, and a list may be filled later.
    of_packages = {n.attr for n in nodes if isinstance(n, ast.Attribute) and ast.unparse(n.value) in flat.imports}
    own = once.keys() - FOREIGN - in_classes - of_packages
    nothing = {n: Scope(facts).value(v) for n, v in once.items() if n in own and not isinstance(v, ast.List | ast.Set)}
    facts.held |= {name: value for name, value in nothing.items() if value in NOTHING}
    kept = {name: value for name, value in once.items() if ast.unparse(value).split(".")[0] in ours}
    for call in (node for node in nodes if isinstance(node, ast.Call) and node.args):
        slot, owner = call.func, ast.dump(call.args[0])
        # A slot's function is called with its owner.
        if isinstance(slot, ast.Attribute) and slot.attr in kept and ast.dump(slot.value) == owner:
            call.func = copy.deepcopy(kept[slot.attr])


def _groups_held(flat: Flat, facts: Facts) -> dict[tuple[str, str], Path]:
    """Return (class, attribute) → the group of settings that a field or the constructor puts there."""
    classes = [node for node in flat.statements() if isinstance(node, ast.ClassDef)]
    found = {}
    for node in classes:
        for part in node.body:
            kind = ast.unparse(part.annotation) if isinstance(part, ast.AnnAssign) else ""
            if kind in facts.groups and node.name not in facts.groups:
                found[node.name, ast.unparse(part.target)] = facts.groups[kind]  # type: ignore[attr-defined]
        for name, value, scope in _set_by_constructor(node, facts):
            if (path := scope.path(value)) is not None:
                found[node.name, name] = path
    for node in classes:
        for base in map(ast.unparse, node.bases):
            found |= {(node.name, name): path for (owner, name), path in found.items() if owner == base}
    return found


def _set_by_constructor(node: ast.ClassDef, facts: Facts) -> Iterator[tuple[str, ast.expr, Scope]]:
    """Yield (attribute, expression, scope of the expression) of what `__init__` always puts into `self`."""
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            scope = Scope(facts, node.name).enter(part)
            for statement in part.body:
                for target, value in assignments(statement):
                    if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                        yield target.attr, value, scope


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
    """Return function → value for functions that do nothing but return one known value, such as `uses_gptq`."""
    found = {}
    for node in flat.statements():
        if isinstance(node, ast.FunctionDef):
            body = [part for part in node.body if not is_docstring(part)]
            returned = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None
            if returned and isinstance(value := Scope(facts).enter(node).value(returned), SCALARS):
                found[node.name] = value
    return found


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
        return None if self.scope.value(node.iter) == () or not node.body else node

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
        return self.generic_visit(node) if value is UNKNOWN else ast.Constant(value)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        is_held = isinstance(node.ctx, ast.Load) and node.attr in self.scope.facts.held
        return self.visit_Call(node) if is_held else self.generic_visit(node)

    visit_Compare = visit_UnaryOp = visit_Call  # noqa: N815

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if not isinstance(node.ctx, ast.Load) or not self._is_nothing(node):
            return node
        value = self.scope.values[node.id]
        return ast.Tuple([], ast.Load()) if value == () else ast.Constant(value)

    def _is_nothing(self, node: ast.expr) -> bool:
        """Tell whether `node` is a local with one value, which says that something is not there."""
        return isinstance(node, ast.Name) and self.scope.values.get(node.id, UNKNOWN) in NOTHING

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        self.generic_visit(node)
        pairs = list(assignments(node))
        # `x = f(x) if cfg.on else x` has become `x = x`.
        same = [to for to, value in pairs if isinstance(value, ast.Name) and value.id == ast.unparse(to)]
        kept = [(to, value) for to, value in pairs if to not in same and not self._is_nothing(to)]
        if len(kept) < len(pairs) == len(getattr(node.value, "elts", ())) and len(node.targets) == 1 and kept:
            targets, values = ([pair[i] for pair in kept] for i in (0, 1))
            node.targets = targets if len(kept) == 1 else [ast.Tuple(targets, ast.Store())]
            node.value = values[0] if len(kept) == 1 else ast.Tuple(values, ast.Load())
        return node if kept else None

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        is_alias = isinstance(node.value, ast.Name) and ast.unparse(node.target) == node.value.id
        return None if is_alias or self._is_nothing(node.target) else self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        self.generic_visit(node)
        values, node.values = node.values, []
        for part in values:
            inner = part
            if isinstance(part, ast.FormattedValue) and part.format_spec is None and part.conversion == -1:
                inner = part.value
            whole = inner.values if isinstance(inner, ast.JoinedStr) else [part]
            node.values += [ast.Constant(str(inner.value))] if isinstance(inner, ast.Constant) else whole
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        is_idle = isinstance(node.right, ast.Constant) and (type(node.op), node.right.value) in IDENTITIES
        return node.left if is_idle else node

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


def _aliases(function: ast.FunctionDef, changing: set[str]) -> dict[str, ast.expr]:
    """Return the locals of `function` that are only another name of a parameter, or of a global not in `changing`."""
    nodes = list(walk(function))
    if any(isinstance(node, ast.ClassDef) for node in nodes):
        return {}
    stored = Counter(n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load))
    # An `except` or an import binds a name, too, and a handler's name ends with it.
    others = (node for node in nodes if isinstance(node, ast.ExceptHandler | ast.alias | ast.FunctionDef))
    stored.update(bound_names(others) - stored.keys())
    args = Counter(node.arg for node in nodes if isinstance(node, ast.arg))
    pairs = [pair for node in nodes for pair in assignments(node) if all(isinstance(part, ast.Name) for part in pair)]
    return {
        to.id: name  # type: ignore[attr-defined]
        for to, name in pairs
        if stored[to.id] == 1 and not (stored[name.id] or args[to.id]) and args[name.id] < 2  # type: ignore
        if not {to.id, name.id} & changing  # type: ignore[attr-defined]
    }


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
