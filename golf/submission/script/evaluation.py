"""Values of expressions under a fixed configuration, as far as settings alone decide them.

Only names within one function are followed: parameters annotated with a class of settings, and locals made from them.
"""

from __future__ import annotations

import ast
import itertools
import operator
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from golf.submission.script.syntax import parameters

Path = tuple[str, ...]  # names that lead to a setting or a group: ("model", "num_heads")
UNKNOWN = object()
TUPLES = ast.Tuple | ast.GeneratorExp
COMPREHENSIONS = ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp
SCALARS = (bool, int, float, str, bytes, type(None))
# Values that tell that something is not there, or is once. Any other constant has a name for the reader's sake.
NOTHING = (None, False, True, 0, 1, "", b"", ())
SIGNS = {"Eq": "eq", "NotEq": "ne", "Lt": "lt", "LtE": "le", "Gt": "gt", "GtE": "ge", "Is": "is_", "IsNot": "is_not"}
COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    **{getattr(ast, kind): getattr(operator, name) for kind, name in SIGNS.items()},
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


@dataclass
class Facts:
    """The settings of a configuration, and the places in the program that hold or decide them."""

    groups: Mapping[str, Path]  # class of settings → path of its group
    values: dict[Path, list[Any]]  # setting → the values that it may have in the program, `UNKNOWN` for any
    results: dict[str, Any] = field(default_factory=dict)  # function, with a dot before a method → what it returns
    makers: dict[str, Path] = field(default_factory=dict)  # function → group of settings that it returns
    attributes: dict[tuple[str, str], Path] = field(default_factory=dict)  # (class, attribute) → group that it holds
    held: dict[str, Any] = field(default_factory=dict)  # attribute → what it always holds under this configuration
    given: dict[int, dict[str, Any]] = field(default_factory=dict)  # id of a function → parameter → its one value

    @cached_property
    def paths(self) -> set[Path]:
        """The paths of all settings and groups."""
        return {path[:end] for path in (*self.values, *self.groups.values()) for end in range(len(path) + 1)}


@dataclass(frozen=True)
class Scope:
    """The names that stand for groups of settings or for known values at one place in the program."""

    facts: Facts
    class_name: str = ""
    groups: Mapping[str, Path] = field(default_factory=dict)  # name → its group or single setting
    values: Mapping[str, Any] = field(default_factory=dict)
    unread: Collection[str] = ()  # locals that are set once and never read

    def enter(self, node: ast.FunctionDef | ast.Lambda) -> Scope:
        """Return the scope inside the function `node`."""
        hidden = {a.arg for a in parameters(node)}
        times = Counter(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load))
        groups = {name: path for name, path in self.groups.items() if name not in hidden | times.keys()}
        values = {name: value for name, value in self.values.items() if name not in hidden | times.keys()}
        kinds = {a.arg: getattr(a.annotation, "id", "") for a in parameters(node)} | {"self": self.class_name}
        groups |= {arg: self.facts.groups[kinds[arg]] for arg in hidden if kinds[arg] in self.facts.groups}
        given = self.facts.given.get(id(node), {})
        values |= {name: value for name, value in given.items() if name not in times}
        read = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        read |= {name for n in ast.walk(node) if isinstance(n, ast.Nonlocal | ast.Global) for name in n.names}
        unread = {name for name in times.keys() - read if times[name] == 1}
        inner = Scope(self.facts, self.class_name, groups, values, unread)
        for target, value in [pair for n in ast.walk(node) for pair in assignments(n)]:
            # A name that is assigned twice has one value at one place and another elsewhere.
            if isinstance(target, ast.Name) and times[target.id] == 1 and target.id not in hidden:
                if (path := inner.path(value)) is not None:
                    groups[target.id] = path
                # A list may be filled later.
                elif isinstance(known := inner.value(value), tuple if isinstance(value, TUPLES) else SCALARS):
                    values[target.id] = known
        return inner

    def path(self, node: ast.expr) -> Path | None:
        """Return the path of the group or setting that `node` names, or None."""
        if isinstance(node, ast.Name):
            return self.groups.get(node.id)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self.facts.makers.get(node.func.id)
        if not isinstance(node, ast.Attribute):
            return None
        # In a class of settings `self` is a group itself; in any other class an attribute of `self` can hold one.
        if isinstance(node.value, ast.Name) and node.value.id == "self" and "self" not in self.groups:
            return self.facts.attributes.get((self.class_name, node.attr))
        base = self.path(node.value)
        path = None if base is None else (*base, node.attr)
        return path if path in self.facts.paths else None

    def value(self, node: ast.expr) -> Any:
        """Return the value of `node`, or `UNKNOWN`."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name) and node.id in self.values:
            return self.values[node.id]
        if (path := self.path(node)) is not None and path in self.facts.values:
            first, *others = self.facts.values[path]
            return first if all(other == first for other in others) else UNKNOWN
        if isinstance(node, ast.Attribute):
            return self.facts.held.get(node.attr, UNKNOWN)
        if isinstance(node, COMPREHENSIONS):
            return () if self.value(node.generators[0].iter) == () else UNKNOWN
        if isinstance(node, ast.Call):
            return self._returned(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            operand = self.value(node.operand)
            return UNKNOWN if operand is UNKNOWN else not operand
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        if isinstance(node, ast.BoolOp):
            return self._boolean(node)
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            items = [self.value(item) for item in node.elts]
            # A tuple stands for lists and sets as well: values are only compared and looked up in them.
            return UNKNOWN if UNKNOWN in items else tuple(items)
        return UNKNOWN

    def _returned(self, call: ast.Call) -> Any:
        """Return what `call` returns, or `UNKNOWN`."""
        if isinstance(call.func, ast.Attribute):
            if call.func.attr in ("items", "values", "keys"):
                return () if self.value(call.func.value) in ((), {}) else UNKNOWN
            return self.facts.results.get(f".{call.func.attr}", UNKNOWN)
        name = ast.unparse(call.func)
        if name in ("bool", "tuple") and call.args:
            value = self.value(call.args[0])
            return UNKNOWN if value is UNKNOWN else (bool if name == "bool" else tuple)(value)
        if name == "sum":
            tests = [test for loop in getattr(call.args[0], "generators", ()) for test in loop.ifs]
            return 0 if False in map(self.value, tests) else UNKNOWN
        if name == "any":
            return False if self.value(getattr(call.args[0], "elt", call.args[0])) in (None, False) else UNKNOWN
        return self.facts.results.get(name, UNKNOWN)

    def _comparison(self, node: ast.Compare) -> Any:
        if isinstance(node.ops[-1], ast.In) and self.value(node.comparators[-1]) == ():
            return False
        terms = [self.facts.values.get(self.path(t) or (), [self.value(t)]) for t in (node.left, *node.comparators)]
        if any(UNKNOWN in values for values in terms):
            return UNKNOWN
        try:
            # Whichever of their values several settings have, the answer has to be one.
            answers = {
                all(COMPARISONS[type(op)](a, b) for a, op, b in zip(values, node.ops, values[1:], strict=False))
                for values in itertools.product(*terms)
            }
        except TypeError:
            # An operand before it keeps the program from coming here, as in `x is not None and x > 0`.
            return UNKNOWN
        return answers.pop() if len(answers) == 1 else UNKNOWN

    def _boolean(self, node: ast.BoolOp) -> Any:
        # Operands have no side effects in this package, so that one known operand can decide, wherever it stands.
        values = [self.value(operand) for operand in node.values]
        stops = isinstance(node.op, ast.Or)
        for value in values:
            if value is not UNKNOWN and bool(value) == stops:
                # `unknown or "text"` is true, but need not be the text.
                is_truth = not stops or isinstance(value, bool)
                return value if values[0] is not UNKNOWN else stops if is_truth else UNKNOWN
        return UNKNOWN if UNKNOWN in values else values[-1]


def assignments(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield (target, value) of an assignment statement, item by item where both sides are tuples."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield target, node.value
