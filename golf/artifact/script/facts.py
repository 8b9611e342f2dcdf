"""What is known of a program whose configuration is fixed: the settings, and parameters that always get one value.

`Scope.value` evaluates an expression as far as these go. A setting that the program itself may change is not known.
"""

from __future__ import annotations

import ast
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from golf.artifact.script.scopes import bound_names, parameters, walk

Path = tuple[str, ...]  # of a setting or a group of settings: ("model", "num_heads")
UNKNOWN = object()
SCALARS = (bool, int, float, str, bytes, type(None))
COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


@dataclass
class Facts:
    """`groups` are the settings' classes by name, with their path; `values` the settings; `open` those not fixed."""

    groups: Mapping[str, Path]
    values: Mapping[Path, Any]
    shared: set[Path] = field(default_factory=set)  # groups whose class is not theirs alone
    open: set[Path] = field(default_factory=set)
    given: dict[str, Any] = field(default_factory=dict)  # functions of which the configuration tells what they return
    attributes: dict[tuple[str, str], Path] = field(default_factory=dict)  # (class, attribute) → group it holds
    constants: dict[tuple[str, str], Any] = field(default_factory=dict)  # (function, parameter) → its only value
    literals: dict[str, Any] = field(default_factory=dict)  # constants at the top of modules
    makers: dict[str, Path] = field(default_factory=dict)  # functions that return a group of settings
    fixed: dict[tuple[str, str], Any] = field(default_factory=dict)  # (class, attribute) → its only value
    results: dict[str, Any] = field(default_factory=dict)  # functions that return one known value


@dataclass(frozen=True)
class Scope:
    """Where an expression stands: which names are groups of settings, which are known values."""

    facts: Facts
    class_name: str = ""
    groups: Mapping[str, Path] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    local: frozenset[str] = frozenset()

    def enter(self, node: ast.FunctionDef | ast.Lambda, name: str) -> Scope:
        """The scope in a function that `Facts.constants` calls `name`."""
        args = parameters(node)
        hidden = {a.arg for a in args}
        assigned = _assigned(node) if isinstance(node, ast.FunctionDef) else Assigned()
        local = self.local | hidden | assigned.names
        groups = {k: v for k, v in self.groups.items() if k not in hidden}
        values = {k: v for k, v in self.values.items() if k not in hidden}
        for a in args:
            kind = a.annotation.id if isinstance(a.annotation, ast.Name) else ""
            if kind in self.facts.groups:
                groups[a.arg] = self.facts.groups[kind]
            if (name, a.arg) in self.facts.constants:
                values[a.arg] = self.facts.constants[name, a.arg]
        if self.class_name in self.facts.groups and args and args[0].arg == "self":
            groups["self"] = self.facts.groups[self.class_name]
        inner = Scope(self.facts, self.class_name, groups, values, local)
        if isinstance(node, ast.Lambda):
            return inner
        values = {k: v for k, v in values.items() if k not in assigned.times}
        for target, value in assigned.single:
            inner = Scope(self.facts, self.class_name, groups, values, local)
            if (path := inner.path(value)) is not None:
                groups[target] = path  # aliases of groups and of single settings alike
            elif isinstance(known := inner.value(value), SCALARS):  # a list may be filled later
                values[target] = known
        return Scope(self.facts, self.class_name, groups, values, local)

    def path(self, node: ast.expr) -> Path | None:
        """The group or setting that `node` names, if it names one."""
        if isinstance(node, ast.Name):
            return self.groups.get(node.id)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self.facts.makers.get(node.func.id)
        if not isinstance(node, ast.Attribute):
            return None
        if isinstance(node.value, ast.Name) and node.value.id == "self" and "self" not in self.groups:
            return self.facts.attributes.get((self.class_name, node.attr))
        base = self.path(node.value)
        path = None if base is None else (*base, node.attr)
        known = (self.facts.values, self.facts.groups.values(), self.facts.shared)
        return path if any(path in paths for paths in known) else None

    def value(self, node: ast.expr) -> Any:
        """What `node` evaluates to, or `UNKNOWN`."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name) and node.id in self.values:
            return self.values[node.id]
        if isinstance(node, ast.Name) and node.id not in self.local and node.id in self.facts.literals:
            return self.facts.literals[node.id]
        if (path := self.path(node)) is not None and path in self.facts.values and path not in self.facts.open:
            return self.facts.values[path]
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            return self.facts.fixed.get((self.class_name, node.attr), UNKNOWN)
        if isinstance(node, ast.Subscript):
            return self._item(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            operand = self.value(node.operand)
            return UNKNOWN if operand is UNKNOWN else not operand
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        if isinstance(node, ast.BoolOp):
            return self._boolean(node)
        if isinstance(node, ast.IfExp):
            either = self.value(node.body), self.value(node.orelse)
            return either[0] if type(either[0]) is type(either[1]) and either[0] == either[1] else UNKNOWN
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            items = [self.value(item) for item in node.elts]
            return UNKNOWN if UNKNOWN in items else tuple(items)
        return UNKNOWN

    def _item(self, node: ast.Subscript) -> Any:
        """Of a dictionary written at the top of a module, whose name says that it never changes."""
        if not isinstance(node.value, ast.Name) or not node.value.id.strip("_").isupper():
            return UNKNOWN
        items, key = self.value(node.value), self.value(node.slice)
        return items.get(key, UNKNOWN) if isinstance(items, dict) and isinstance(key, str) else UNKNOWN

    def _call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name):
            known = self.facts.results.get(node.func.id, UNKNOWN)
            empty = len(node.args) == 1 and node.func.id in ("enumerate", "iter", "list", "set", "sorted", "tuple")
            return () if empty and self.value(node.args[0]) in ((), {}) else known
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("items", "values", "keys"):
            return () if self.value(node.func.value) in ((), {}) else UNKNOWN
        return UNKNOWN

    def _comparison(self, node: ast.Compare) -> Any:
        terms = [self.value(term) for term in (node.left, *node.comparators)]
        if isinstance(node.ops[-1], ast.In) and len(terms) == 2 and terms[1] in ((), {}):
            return False
        if UNKNOWN in terms:
            return UNKNOWN
        pairs = zip(terms, node.ops, terms[1:], strict=False)
        return all(COMPARISONS[type(op)](left, right) for left, op, right in pairs)

    def _boolean(self, node: ast.BoolOp) -> Any:
        """Operands have no side effects, so that one known operand can decide."""
        values = [self.value(operand) for operand in node.values]
        stops = isinstance(node.op, ast.Or)
        for value in values:
            if value is not UNKNOWN and bool(value) == stops:
                return value if values[0] is not UNKNOWN else stops
        return UNKNOWN if UNKNOWN in values else values[-1]


@dataclass
class Assigned:
    """What a function assigns to: its own `names`, how often any name in it, and those assigned once with the value."""

    names: set[str] = field(default_factory=set)
    times: Counter[str] = field(default_factory=Counter)
    single: list[tuple[str, ast.expr]] = field(default_factory=list)


def _assigned(node: ast.FunctionDef) -> Assigned:
    """Read `node` once; `Flat.changed` has it read again."""
    known = getattr(node, "assigned", None)
    if known is None:
        parts = list(walk(node))
        times = Counter(n.id for n in parts if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load))
        pairs = [pair for n in parts for pair in assignments(n)]
        single = [(t.id, value) for t, value in pairs if isinstance(t, ast.Name) and times[t.id] == 1]
        known = node.assigned = Assigned(bound_names(node.body), times, single)  # type: ignore[attr-defined]
    return known


def assignments(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """(target, value) of an assignment statement, taken apart where both sides are tuples."""
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        yield node.target, node.value
    if not isinstance(node, ast.Assign):
        return
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield target, node.value
