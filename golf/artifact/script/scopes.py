"""What a top-level statement uses: names of the module's own namespace, attributes, calls; which names are local."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
PLAIN_FIELDS = {  # of syntax nodes: what is no node, contexts and operators
    *("ctx", "op", "ops", "id", "attr", "arg", "asname", "module", "level", "kind", "conversion", "type_comment"),
    *("is_async", "simple", "tag", "name", "rest"),
}
READS = {"items", "values", "keys"}  # methods that do not change a dictionary
DOTTED = re.compile(r"[A-Za-z_][\w.]*( [A-Za-z_][\w.]*)*")


@functools.cache
def _node_fields(kind: type[ast.AST]) -> tuple[str, ...]:
    is_plain = kind in (ast.Constant, ast.MatchSingleton)
    return () if is_plain else tuple(name for name in kind._fields if name not in PLAIN_FIELDS)


def children(node: ast.AST) -> list[ast.AST]:
    """As `ast.iter_child_nodes`, many times as fast, and without the contexts of names and the kinds of operators."""
    found: list[ast.AST] = []
    for name in _node_fields(node.__class__):  # type: ignore[arg-type]
        value = getattr(node, name, None)
        if value.__class__ is list:
            found += [item for item in value if item is not None and item.__class__ is not str]
        elif value is not None:
            found.append(value)
    return found


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """As `ast.walk`, in another order."""
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending += children(current)


@dataclass
class Uses:
    """Of one top-level statement."""

    names: list[ast.Name] = field(default_factory=list)  # of the module's namespace, builtins included
    attributes: set[str] = field(default_factory=set)  # that are read; also keywords, and what strings could name
    passed_on: set[str] = field(default_factory=set)  # names used other than by a call; attributes with a dot in front
    local: set[str] = field(default_factory=set)  # names that some function in it binds
    calls: list[ast.Call] = field(default_factory=list)
    stores: list[tuple[str, str]] = field(default_factory=list)  # attributes assigned to, and the class if through self
    filled: set[str] = field(default_factory=set)  # attributes whose value is used so that it could be changed in place


def uses_of(statement: ast.stmt) -> Uses:
    """Read `statement` once."""
    reader = _Reader()
    reader.visit(statement, ())
    reader.uses.stores = list(_stores(statement))
    reader.uses.filled = _filled(statement)
    return reader.uses


def _stores(statement: ast.stmt) -> Iterator[tuple[str, str]]:
    for node in walk(statement):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            through_self = isinstance(node.value, ast.Name) and node.value.id == "self"
            yield node.attr, statement.name if through_self and isinstance(statement, ast.ClassDef) else ""


def _filled(statement: ast.stmt) -> set[str]:
    safe: set[int] = set()
    read: list[ast.Attribute] = []
    for node in walk(statement):
        if isinstance(node, ast.For | ast.comprehension):
            safe.add(id(node.iter))
        elif isinstance(node, ast.If | ast.IfExp):
            safe.add(id(node.test))
        elif isinstance(node, ast.BoolOp | ast.Compare):
            safe |= {id(child) for child in ast.iter_child_nodes(node)}
        elif isinstance(node, ast.UnaryOp):
            safe.add(id(node.operand))
        elif isinstance(node, ast.Attribute):
            if node.attr in READS:
                safe.add(id(node.value))
            if isinstance(node.ctx, ast.Load):
                read.append(node)
    return {node.attr for node in read if id(node) not in safe}


def bound_names(body: list[ast.stmt] | ast.AST) -> set[str]:
    """Names that statements bind in the scope they stand in, not in nested ones."""
    found: set[str] = set()
    pending: list[ast.AST] = list(body) if isinstance(body, list) else [body]
    while pending:
        node = pending.pop()
        if isinstance(node, DEFINITIONS):
            found.add(node.name)
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.split(".")[0])
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            found.add(node.name)
        if isinstance(node, COMPREHENSIONS):  # its targets are its own, a walrus inside is not
            found |= {n.target.id for n in walk(node) if isinstance(n, ast.NamedExpr)}
        else:
            pending.extend(children(node))
    return found


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.arg]:
    """All parameters, in the order of the signature."""
    a = function.args
    extra = [arg for arg in (a.vararg, a.kwarg) if arg is not None]
    return [*a.posonlyargs, *a.args, *a.kwonlyargs, *extra]


class ClassNames(set[str]):
    """Names of a class body, which functions and comprehensions in it do not see."""


Scopes = tuple[set[str], ...]  # names of the functions around a place, and of a class if it is right in its body


class _Reader:
    def __init__(self) -> None:
        self.uses = Uses()

    def visit(self, node: ast.AST, scopes: Scopes, role: str = "value") -> None:
        """`role` is how the value of `node` is used: call, annotation or value."""
        if isinstance(node, ast.Name):
            self._name(node, scopes, role)
        elif isinstance(node, FUNCTIONS):
            self._function(node, scopes)
        elif isinstance(node, ast.ClassDef):
            self._class(node, scopes)
        elif isinstance(node, COMPREHENSIONS):
            self._comprehension(node, scopes)
        elif isinstance(node, ast.Call):
            self.uses.calls.append(node)
            self.visit(node.func, scopes, "call")
            self._all([*node.args, *node.keywords], scopes)
        elif isinstance(node, ast.AnnAssign):
            self.visit(node.annotation, scopes, "annotation")
            self._all([node.target, node.value], scopes)
        else:
            self._attribute_names(node, role)
            inherited = role if role == "annotation" else "value"
            for child in children(node):
                self.visit(child, scopes, inherited)

    def _all(self, nodes: list, scopes: Scopes, role: str = "value") -> None:
        for node in nodes:
            if node is not None:
                self.visit(node, scopes, role)

    def _name(self, node: ast.Name, scopes: Scopes, role: str) -> None:
        if any(node.id in scope for scope in scopes):
            return
        self.uses.names.append(node)
        if role == "value" and isinstance(node.ctx, ast.Load):
            self.uses.passed_on.add(node.id)

    def _attribute_names(self, node: ast.AST, role: str) -> None:
        if isinstance(node, ast.Attribute):
            if isinstance(node.ctx, ast.Load):
                self.uses.attributes.add(node.attr)
                if role != "call":
                    self.uses.passed_on.add(f".{node.attr}")
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Attribute):
            self.uses.attributes.add(node.target.attr)
        elif isinstance(node, ast.keyword) and node.arg:
            self.uses.attributes.add(node.arg)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and DOTTED.fullmatch(node.value):
            self.uses.attributes |= set(re.findall(r"\w+", node.value))

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scopes: Scopes) -> None:
        args = parameters(node)
        self._all([*node.args.defaults, *node.args.kw_defaults], scopes)
        self._all([a.annotation for a in args], scopes, "annotation")
        if isinstance(node, ast.Lambda):
            body: list = [node.body]
        else:
            body = node.body
            self._all(node.decorator_list, scopes)
            self._all([node.returns], scopes, "annotation")
        own = {a.arg for a in args} | bound_names(body)
        own -= {name for part in body for n in walk(part) if isinstance(n, ast.Global) for name in n.names}
        self.uses.local |= own
        self._all(body, (*_functions_only(scopes), own))

    def _class(self, node: ast.ClassDef, scopes: Scopes) -> None:
        self._all([*node.decorator_list, *node.bases, *node.keywords], scopes)
        self._all(node.body, (*_functions_only(scopes), ClassNames(bound_names(node.body))))

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, scopes: Scopes
    ) -> None:
        targets = {n.id for g in node.generators for n in walk(g.target) if isinstance(n, ast.Name)}
        self.uses.local |= targets
        inner = (*_functions_only(scopes), targets)
        for i, generator in enumerate(node.generators):
            self.visit(generator.iter, scopes if i == 0 else inner)
            self._all(generator.ifs, inner)
        self._all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt], inner)


def _functions_only(scopes: Scopes) -> Scopes:
    return tuple(scope for scope in scopes if not isinstance(scope, ClassNames))
