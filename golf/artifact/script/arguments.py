"""Parameters that a configuration does not need: those that nothing reads, and those that are the same in all calls."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence

from golf.artifact.script.evaluation import NOTHING
from golf.artifact.script.flat import Flat
from golf.artifact.script.functions import Function, functions_of
from golf.artifact.script.syntax import is_simple, parameters, walk

Given = Mapping[str, ast.expr]  # parameter → what a call gives it


def drop_arguments(flat: Flat) -> bool:
    """Drop such parameters of `flat` in place, with what calls give them. Return whether there was one."""
    seen = [_drop(function) for function in functions_of(flat) if 0 < len(function.calls) == len(function.uses)]
    for statement in flat.statements() if any(seen) else ():
        flat.changed(statement)
    return any(seen)


def _drop(function: Function) -> bool:
    args = function.node.args
    places = [arg.arg for arg in args.args][function.is_method :]
    defaults = dict(zip(reversed(places), reversed(args.defaults), strict=False))
    defaults |= {arg.arg: value for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True) if value}
    given = [_given(call, places, defaults) for call in function.calls]
    names = {arg.arg for arg in parameters(function.node)[function.is_method :]}
    if any(values.keys() != names for values in given):
        return False
    inside = [node for part in function.node.body for node in walk(part)]
    read = {node.id for node in inside if isinstance(node, ast.Name)}
    bound = {node.id for node in inside if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    bound |= {node.arg for node in inside if isinstance(node, ast.arg)}
    gone = {name: value for name, value in given[0].items() if _is_idle(name, given, read, bound)}
    for part in function.node.body if gone else ():
        _Constants(gone).visit(part)
    args.args = [arg for arg in args.args if arg.arg not in gone]
    args.defaults = [defaults[arg.arg] for arg in args.args if arg.arg in defaults]
    args.kwonlyargs = [arg for arg in args.kwonlyargs if arg.arg not in gone]
    args.kw_defaults = [defaults.get(arg.arg) for arg in args.kwonlyargs]
    for call in function.calls:
        call.args = [value for name, value in zip(places, call.args, strict=False) if name not in gone]
        call.keywords = [keyword for keyword in call.keywords if keyword.arg not in gone]
    return bool(gone)


def _given(call: ast.Call, places: Sequence[str], defaults: Given) -> Given:
    """Return what `call` gives each parameter, or nothing if that cannot be told."""
    if len(call.args) > len(places) or any(isinstance(value, ast.Starred) for value in call.args):
        return {}
    by_name = {str(keyword.arg): keyword.value for keyword in call.keywords}
    return {**defaults, **dict(zip(places, call.args, strict=False)), **by_name}


def _is_idle(name: str, given: Sequence[Given], read: set[str], bound: set[str]) -> bool:
    """Tell whether nothing reads the parameter `name`, or each call gives it one constant that says "nothing"."""
    first, *others = (values[name] for values in given)
    if name not in read:
        return all(is_simple(value) for value in (first, *others))
    is_nothing = isinstance(first, ast.Constant) and first.value in NOTHING and name not in bound
    return is_nothing and all(ast.dump(other) == ast.dump(first) for other in others)


class _Constants(ast.NodeTransformer):
    """A pass that puts `constants` in the places of names."""

    def __init__(self, constants: Given):
        self.constants = constants

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self.constants[node.id]) if node.id in self.constants else node
