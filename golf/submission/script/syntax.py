"""Names in syntax trees: which names of its module a statement uses, which attributes it reads, what it binds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from torch import Tensor, nn

# A method with such a name may be that of another package's object.
FOREIGN = {name for kind in (dict, list, set, str, bytes, Path, np.ndarray, Tensor, nn.Module) for name in dir(kind)}
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
DOTTED = re.compile(r"[A-Za-z_][\w.]*( [A-Za-z_][\w.]*)*")  # one or more settings' paths: "data.path seed"


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
            found |= {n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr)}
        else:
            pending += ast.iter_child_nodes(node)
    return found


def is_docstring(node: ast.AST) -> bool:
    """Tell whether `node` is a constant on a line of its own."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def parameters(function: Function) -> list[ast.arg]:
    """Return all parameters of `function`."""
    a = function.args
    return [*a.posonlyargs, *a.args, *a.kwonlyargs, *[arg for arg in (a.vararg, a.kwarg) if arg is not None]]


def uses_of(statement: ast.stmt) -> Uses:
    """Return what `statement` uses."""
    uses = Uses()
    uses.visit(statement, set(), set())
    return uses


@dataclass
class Uses:
    """Names and attributes that one top-level statement refers to."""

    names: list[ast.Name] = field(default_factory=list)  # names of the module's namespace, builtins included
    types: list[ast.Name] = field(default_factory=list)  # the same, in the annotations of functions
    attributes: set[str] = field(default_factory=set)  # attributes read, keyword arguments, words of dotted strings

    def visit(self, node: ast.AST, hidden: set[str], own: set[str]) -> None:
        """Add what `node` uses. `hidden` are names that the functions around it bind.

        `own` are those of the class whose body it stands in, which functions and comprehensions in it do not see.
        """
        if isinstance(node, ast.Name):
            if node.id not in hidden and node.id not in own:
                self.names.append(node)
        elif isinstance(node, Function):
            self._function(node, hidden, own)
        elif isinstance(node, ast.ClassDef):
            self._all([*node.decorator_list, *node.bases, *node.keywords], hidden, own)
            self._all(node.body, hidden, bound_names(node.body))
        elif isinstance(node, Comprehension):
            first, targets = node.generators[0], [generator.target for generator in node.generators]
            # Python evaluates the first iterable outside the comprehension.
            self.visit(first.iter, hidden, own)
            inner = [part for part in ast.iter_child_nodes(node) if part is not first]
            self._all([*first.ifs, *inner], hidden | bound_names(targets), set())
        elif not is_docstring(node):  # words of a docstring would pass for names of settings
            self._attribute(node)
            self._all(ast.iter_child_nodes(node), hidden, own)

    def _all(self, nodes: Iterable[ast.AST | None], hidden: set[str], own: set[str]) -> None:
        for node in filter(None, nodes):
            self.visit(node, hidden, own)

    def _attribute(self, node: ast.AST) -> None:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            self.attributes.add(node.attr)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Attribute):
            self.attributes.add(node.target.attr)
        elif isinstance(node, ast.keyword) and node.arg:
            self.attributes.add(node.arg)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and DOTTED.fullmatch(node.value):
            # `getattr` with a computed name reads settings that only a string mentions.
            self.attributes |= set(re.findall(r"\w+", node.value))

    def _function(self, node: Function, hidden: set[str], own: set[str]) -> None:
        args = parameters(node)
        # Defaults, annotations and decorators are evaluated outside the function.
        self._all([*node.args.defaults, *node.args.kw_defaults, *getattr(node, "decorator_list", ())], hidden, own)
        values = len(self.names)
        self._all([*(a.annotation for a in args), getattr(node, "returns", None)], hidden, own)
        # Annotations were read like all other names; they are moved, as naming a type makes no object of it.
        self.types += self.names[values:]
        del self.names[values:]
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
        bound = {a.arg for a in args} | bound_names(body)
        # What a function declares global belongs to the module.
        bound -= {name for part in body for n in ast.walk(part) if isinstance(n, ast.Global) for name in n.names}
        self._all(body, hidden | bound, set())
