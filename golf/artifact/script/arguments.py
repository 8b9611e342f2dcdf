"""Parameters that a configuration does not need: those that nothing reads, and those that are the same in all calls."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence

from golf.artifact.script.evaluation import NOTHING
from golf.artifact.script.flat import Flat
from golf.artifact.script.functions import Function, field_names, functions_of
from golf.artifact.script.syntax import is_simple, parameters, walk

HEADER = "write_header"  # the function that reads all fields of settings
REFLECTION = {"asdict", "astuple", "fields", "vars", "__dict__"}  # names by which others may read all fields
Given = Mapping[str, ast.expr]  # parameter → what a call gives it


def drop_arguments(flat: Flat, settings: set[str]) -> bool:
    """Drop such parameters of `flat` in place, with what calls give them. Return whether there was one.

    The classes of `settings` keep their fields, because the header of an artifact has them.
    """
    outside = (node for s in flat.statements() if getattr(s, "name", "") != HEADER for node in walk(s))
    keep_fields = bool(REFLECTION & {getattr(node, "attr", getattr(node, "id", "")) for node in outside})
    functions = [f for f in functions_of(flat) if not f.fields or not (keep_fields or f.fields.name in settings)]
    seen = [_drop(function) for function in functions]
    for statement in flat.statements() if any(seen) else ():
        flat.changed(statement)
    return any(seen)


def _drop(function: Function) -> bool:
    """Drop those of `function` in place, and defaults that no call uses. Tell if there was a parameter."""
    if not function.calls or len(function.calls) < len(function.uses):
        return False
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
    if function.fields:
        # What is alike in all objects of a class decides no comparison of two.
        gone = {name: value for name, value in gone.items() if _is_one_constant(name, given)}
    for part in function.node.body if gone else ():
        Replaced(gone).visit(part)
    args.args = [arg for arg in args.args if arg.arg not in gone]
    args.defaults = [defaults[arg.arg] for arg in args.args if arg.arg in defaults]
    args.kwonlyargs = [arg for arg in args.kwonlyargs if arg.arg not in gone]
    args.kw_defaults = [defaults.get(arg.arg) for arg in args.kwonlyargs]
    for call in function.calls:
        call.args = [value for name, value in zip(places, call.args, strict=False) if name not in gone]
        call.keywords = [keyword for keyword in call.keywords if keyword.arg not in gone]
    passed = ({*places[: len(call.args)], *(keyword.arg for keyword in call.keywords)} for call in function.calls)
    if all(defaults.keys() <= names for names in passed):
        args.defaults, args.kw_defaults = [], [None for _ in args.kwonlyargs]
    if function.fields:
        idle = [field for name, field in field_names(function.fields).items() if name in gone]
        function.fields.body[:] = [part for part in function.fields.body if part not in idle] or [ast.Pass()]
    return bool(gone)


def _given(call: ast.Call, places: Sequence[str], defaults: Given) -> Given:
    """Return what `call` gives each parameter, or nothing if that cannot be told."""
    if len(call.args) > len(places) or any(isinstance(value, ast.Starred) for value in call.args):
        return {}
    by_name = {str(keyword.arg): keyword.value for keyword in call.keywords}
    return {**defaults, **dict(zip(places, call.args, strict=False)), **by_name}


def _is_idle(name: str, given: Sequence[Given], read: set[str], bound: set[str]) -> bool:
    """Tell whether nothing reads the parameter `name`, or each call gives it one constant that says "nothing"."""
    if name not in read:
        return all(is_simple(values[name]) for values in given)
    return name not in bound and _is_one_constant(name, given) and given[0][name].value in NOTHING  # type: ignore


def _is_one_constant(name: str, given: Sequence[Given]) -> bool:
    first, *others = (values[name] for values in given)
    return isinstance(first, ast.Constant) and all(ast.dump(other) == ast.dump(first) for other in others)


class Replaced(ast.NodeTransformer):
    """A pass that puts `values` in the places of names."""

    def __init__(self, values: Given):
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self.values[node.id]) if node.id in self.values else node
