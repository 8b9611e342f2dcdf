"""Names in syntax trees: which names of its module a statement uses, which attributes it reads, what it binds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from torch import Tensor, nn

# A method with such a name may be that of another package's object.
FOREIGN = {name for kind in (dict, list, set, str, bytes, Path, np.ndarray, Tensor, nn.Module) for name in dir(kind)}
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
DOTTED = re.compile(r"[A-Za-z_][\w.]*( [A-Za-z_][\w.]*)*")  # one or more settings' paths: "data.path seed"


@dataclass
class Uses:
    """Names and attributes that one top-level statement refers to."""

    names: list[ast.Name] = field(default_factory=list)  # names of the module's namespace, builtins included
    types: list[ast.Name] = field(default_factory=list)  # the same, in the annotations of functions
    attributes: set[str] = field(default_factory=set)  # attributes read, keyword arguments, words of dotted strings


def uses_of(statement: ast.stmt) -> Uses:
    """Return what `statement` uses."""
    reader = _Reader()
    reader.visit(statement, ())
    return reader.uses


def children(node: ast.AST) -> list[ast.AST]:
    """Return what `ast.iter_child_nodes` yields but for `ctx`, in half the time."""
    found: list[ast.AST] = []
    for name in node._fields:
        value = None if name == "ctx" else getattr(node, name, None)
        if isinstance(value, list):
            found += [part for part in value if isinstance(part, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield `node` and all `children` below it, in the order of `ast.walk`."""
    level = [node]
    while level:
        yield from level
        level = [child for parent in level for child in children(parent)]


def bound_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that `nodes` bind in the scope that they stand in, not in nested scopes."""
    found: set[str] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
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
        if isinstance(node, Comprehension):
            # The targets belong to the comprehension; a walrus inside it binds in the scope around it.
            found |= {n.target.id for n in walk(node) if isinstance(n, ast.NamedExpr)}
        else:
            pending.extend(children(node))
    return found


def is_docstring(node: ast.AST) -> bool:
    """Tell whether `node` is a constant on a line of its own."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_simple(node: ast.expr) -> bool:
    """Tell whether `node` only reads names and attributes, so that it may be evaluated twice, or never."""
    kinds = ast.Name, ast.Attribute, ast.Constant, ast.Tuple, ast.BoolOp, ast.boolop
    return all(isinstance(part, kinds) for part in walk(node))


def parameters(function: Function) -> list[ast.arg]:
    """Return all parameters of `function`."""
    a = function.args
    return [*a.posonlyargs, *a.args, *a.kwonlyargs, *[arg for arg in (a.vararg, a.kwarg) if arg is not None]]


class ClassNames(set[str]):
    """The names of a class body, which functions and comprehensions in the body do not see."""


Scopes = tuple[set[str], ...]  # names bound by the functions around a node, and by the class whose body it stands in


class _Reader:
    """A visitor that fills `uses`; it carries the scopes around each node."""

    def __init__(self) -> None:
        self.uses = Uses()

    def visit(self, node: ast.AST, scopes: Scopes) -> None:
        if isinstance(node, ast.Name):
            if not any(node.id in scope for scope in scopes):
                self.uses.names.append(node)
        elif isinstance(node, Function):
            self._function(node, scopes)
        elif isinstance(node, ast.ClassDef):
            self._class(node, scopes)
        elif isinstance(node, Comprehension):
            self._comprehension(node, scopes)
        elif not is_docstring(node):  # words of a docstring would pass for names of settings
            self._attribute(node)
            self._all(children(node), scopes)

    def _all(self, nodes: Iterable[ast.AST | None], scopes: Scopes) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node, scopes)

    def _attribute(self, node: ast.AST) -> None:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            self.uses.attributes.add(node.attr)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Attribute):
            self.uses.attributes.add(node.target.attr)
        elif isinstance(node, ast.keyword) and node.arg:
            self.uses.attributes.add(node.arg)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and DOTTED.fullmatch(node.value):
            # `getattr` with a computed name reads settings that only a string mentions.
            self.uses.attributes |= set(re.findall(r"\w+", node.value))

    def _function(self, node: Function, scopes: Scopes) -> None:
        args = parameters(node)
        # Defaults, annotations and decorators are evaluated outside the function.
        self._all([*node.args.defaults, *node.args.kw_defaults], scopes)
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
        if not isinstance(node, ast.Lambda):
            self._all(node.decorator_list, scopes)
            values = len(self.uses.names)
            self._all([*(a.annotation for a in args), node.returns], scopes)
            # Annotations were read like all other names; they are moved, as naming a type makes no object of it.
            self.uses.types += self.uses.names[values:]
            del self.uses.names[values:]
        own = {a.arg for a in args} | bound_names(body)
        # What a function declares global belongs to the module.
        own -= {name for part in body for n in walk(part) if isinstance(n, ast.Global) for name in n.names}
        self._all(body, (*_without_class(scopes), own))

    def _class(self, node: ast.ClassDef, scopes: Scopes) -> None:
        self._all([*node.decorator_list, *node.bases, *node.keywords], scopes)
        self._all(node.body, (*_without_class(scopes), ClassNames(bound_names(node.body))))

    def _comprehension(self, node: Comprehension, scopes: Scopes) -> None:
        targets = {n.id for g in node.generators for n in walk(g.target) if isinstance(n, ast.Name)}
        inner = (*_without_class(scopes), targets)
        for i, generator in enumerate(node.generators):
            # Python evaluates the first iterable outside the comprehension.
            self.visit(generator.iter, scopes if i == 0 else inner)
            self._all(generator.ifs, inner)
        self._all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt], inner)


def _without_class(scopes: Scopes) -> Scopes:
    return tuple(scope for scope in scopes if not isinstance(scope, ClassNames))
