"""Slots of a fixed configuration: attributes that always hold what the constructor puts there, or stay empty lists."""

from __future__ import annotations

import ast
import copy
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from golf.submission.script.evaluation import COMPREHENSIONS, NOTHING, UNKNOWN, Facts, Scope, assignments
from golf.submission.script.flat import Flat
from golf.submission.script.syntax import FOREIGN, bound_names, walk

Slots = Mapping[str, Sequence[tuple[ast.expr, Scope]]]  # attribute → what is put there, at each place
READERS = {"bool", "in_order", "list", "tuple", "any", "sorted", "enumerate"}  # functions that only read what they get


def name_functions_of_slots(flat: Flat, facts: Facts) -> None:
    """Call a function by its name where a slot is called that always holds what its constructor puts there."""
    nodes = [node for statement in flat.statements() for node in walk(statement)]
    ours = {node.name for node in flat.statements() if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    in_classes = Counter(name for node in classes for part in node.body for name in bound_names([part]))
    times = Counter(n.attr for n in nodes if isinstance(n, ast.Attribute) and not isinstance(n.ctx, ast.Load))
    times.update(n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
    # An attribute of a package, of a field or of a method may have the same name.
    of_packages = {n.attr for n in nodes if isinstance(n, ast.Attribute) and ast.unparse(n.value) in flat.imports}
    filled = defaultdict(list)
    for name, value, scope in (found for node in classes for found in _set_in(node, facts)):
        filled[name].append((value, scope))
    own = {name: found for name, found in filled.items() if times[name] == len(found) and not in_classes[name]}
    own = {name: found for name, found in own.items() if name not in FOREIGN | of_packages}
    facts.held |= _that_hold_nothing(own) | dict.fromkeys(_never_filled(nodes, own), ())
    facts.held |= {
        name: value
        for node in classes
        for name, value in facts.given.get(id(node), {}).items()
        if not times[name] and in_classes[name] == 1 and name not in FOREIGN | of_packages
    }
    once = {name: value for node in classes for name, value, _ in set_by_constructor(node, facts) if times[name] == 1}
    kept = {name: value for name, value in once.items() if ast.unparse(value).split(".")[0] in ours}
    facts.functions = {name: value.id for name, value in kept.items() if isinstance(value, ast.Name) and name in own}
    for call in (node for node in nodes if isinstance(node, ast.Call) and node.args):
        slot, owner = call.func, ast.dump(call.args[0])
        # A slot's function is called with its owner.
        if isinstance(slot, ast.Attribute) and slot.attr in kept and ast.dump(slot.value) == owner:
            call.func = copy.deepcopy(kept[slot.attr])


def _that_hold_nothing(slots: Slots) -> dict[str, Any]:
    """Return slot → value for those that hold one value wherever they are set, which says that something is not there.

    A list may be filled later.
    """
    literals = COMPREHENSIONS | ast.List | ast.Set | ast.Dict
    found = {name: [UNKNOWN if isinstance(v, literals) else s.value(v) for v, s in at] for name, at in slots.items()}
    return {n: first for n, (first, *others) in found.items() if first in NOTHING and all(o is first for o in others)}


def _set_in(node: ast.ClassDef, facts: Facts) -> Iterator[tuple[str, ast.expr, Scope]]:
    """Yield (attribute, expression, scope of the expression) of what the methods of a class put into `self`."""
    for part in (part for part in node.body if isinstance(part, ast.FunctionDef)):
        scope = Scope(facts, node.name).enter(part)
        for target, value in (pair for inner in walk(part) for pair in assignments(inner)):
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                yield target.attr, value, scope


def set_by_constructor(node: ast.ClassDef, facts: Facts) -> Iterator[tuple[str, ast.expr, Scope]]:
    """Yield (attribute, expression, scope of the expression) of what `__init__` always puts into `self`."""
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            scope = Scope(facts, node.name).enter(part)
            for statement in part.body:
                for target, value in assignments(statement):
                    if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                        yield target.attr, value, scope


def _never_filled(nodes: Sequence[ast.AST], slots: Slots) -> set[str]:
    """Return the slots whose lists stay empty: the program only loops over them, or asks whether they are."""
    empty = {name for name, set_at in slots.items() if all(_is_empty(value, scope) for value, scope in set_at)}
    only_read = {id(node.iter) for node in nodes if isinstance(node, ast.For | ast.comprehension)}
    tests = [node.test for node in nodes if isinstance(node, ast.If | ast.IfExp)]
    tests += [node.operand for node in nodes if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)]
    only_read |= {id(part) for test in tests for part in _operands(test)}
    # An empty list before `or` is not the result. Before `and` it is.
    only_read |= {id(v) for n in nodes if isinstance(n, ast.BoolOp) and isinstance(n.op, ast.Or) for v in n.values[:-1]}
    # The values of a dict of lists are lists, which a loop over them may fill.
    flat = {name for name in empty if not any(isinstance(v, ast.Dict) and v.values for v, _ in slots[name])}
    for node in nodes:
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in READERS:
            only_read |= {id(arg) for arg in node.args}
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("items", "values"):
            looped = node.func.value  # type: ignore[attr-defined]
            only_read |= {id(looped)} if getattr(looped, "attr", "") in flat else set()
    read = (n for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load))
    return empty - {node.attr for node in read if id(node) not in only_read}


def _operands(test: ast.expr) -> Iterator[ast.expr]:
    """Yield what the truth of `test` is made of."""
    for part in test.values if isinstance(test, ast.BoolOp) else ():
        yield from _operands(part)
    yield test


def _is_empty(value: ast.expr, scope: Scope) -> bool:
    """Tell whether `value` is empty, or a dict of nothing but empty lists."""
    if isinstance(value, ast.Dict):
        return all(_is_empty(part, scope) for part in value.values)
    return scope.value(value) == ()
