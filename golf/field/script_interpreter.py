"""A small interpreter for public scripts, which are read and not run.

It follows statements and expressions under the variables of a command line. It knows numbers, texts, lists, loops,
functions, classes and the modules of torch, which it builds without memory. All else is unknown, and so is what
depends on it.
"""

from __future__ import annotations

import ast
import operator
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from golf.field.static_values import (
    LIBRARY,
    LISTS,
    METHODS,
    MOST_ITEMS,
    NUMBERS,
    OPERATORS,
    UNKNOWN,
    elements,
    is_flat,
    known_outcome,
    operated,
    outcome,
    truth,
)

Names = ChainMap[str, Any]
SMALLEST_MODEL = 1 << 16  # parameters; a script may build smaller modules before its model
MOST_STEPS = 300_000  # statements and expressions: a second


class UncountableError(Exception):
    """Says why the parameters cannot be counted."""


class LeftError(Exception):
    """Leaves a function, a loop or one pass through a loop."""

    def __init__(self, how: type[ast.stmt], value: Any = None) -> None:
        self.how, self.value = how, value


class BuiltError(Exception):
    """Ends the walk at the model, with the number of its parameters."""


@dataclass
class Interpreter:
    """Follows a script: a method a statement or expression, by the name of its class in `ast`."""

    variables: Mapping[str, Any]  # texts, `UNKNOWN` for one that may have several
    steps: int = 0
    depth: int = 0  # of modules that are being built, within one another
    defaults: dict[str, Any] = field(default_factory=dict)  # of the variables that were read, by the first read

    def run(self, body: Sequence[ast.stmt], names: Names) -> None:
        """Follow statements."""
        for node in body:
            self._follow(node, names)

    def _follow(self, node: ast.AST, names: Names) -> Any:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise UncountableError("the script takes too long")
        handle = getattr(self, f"_{type(node).__name__.lower()}", None)
        return handle(node, names) if handle else UNKNOWN

    value = _follow

    def holds(self, node: ast.expr, names: Names) -> bool | None:
        """Return whether a condition holds, None where it is unknown."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            known = self.holds(node.operand, names)
            return None if known is None else not known
        if isinstance(node, ast.BoolOp):
            sides, decides = [self.holds(operand, names) for operand in node.values], isinstance(node.op, ast.Or)
            # What stands before the deciding side may be unknown: it is asked for nothing but its truth.
            return decides if decides in sides else None if None in sides else not decides
        return truth(self.value(node, names))

    def _functiondef(self, node: ast.FunctionDef, names: Names) -> None:
        names[node.name] = UNKNOWN if node.decorator_list else self._function(node, names)

    def _function(self, node: ast.FunctionDef | ast.Lambda, names: Names) -> Callable[..., Any]:
        """Return a function that follows the one of the script."""
        taken = node.args
        order = [a.arg for a in (*taken.posonlyargs, *taken.args)]
        known = [*order, *(a.arg for a in taken.kwonlyargs)]
        by_argument = [
            *zip(reversed((*taken.posonlyargs, *taken.args)), reversed(taken.defaults), strict=False),
            *zip(taken.kwonlyargs, taken.kw_defaults, strict=True),
        ]
        defaults = {of.arg: self.value(default, names) for of, default in by_argument if default}

        def follow(*values: Any, **keywords: Any) -> Any:
            given = dict(zip(order, values, strict=False))
            inside = names.new_child({**dict.fromkeys(known, UNKNOWN), **defaults, **given})
            inside |= {name: value for name, value in keywords.items() if name in known}
            if taken.vararg:
                inside[taken.vararg.arg] = values[len(order) :]
            if taken.kwarg:
                inside[taken.kwarg.arg] = {name: value for name, value in keywords.items() if name not in known}
            inside["self"] = values[0] if order[:1] == ["self"] else names.get("self", UNKNOWN)
            if isinstance(node, ast.Lambda):
                return self.value(node.body, inside)
            try:
                self.run(node.body, inside)
            except LeftError as left:
                return left.value
            return None

        follow.is_followed = True  # type: ignore[attr-defined]
        return follow

    _lambda = _function

    def _classdef(self, node: ast.ClassDef, names: Names) -> None:
        bases = [self.value(base, names) for base in node.bases]
        inside = names.new_child()
        self.run(node.body, inside)
        parts = {name: part for name, part in inside.maps[0].items() if name == "__init__" or name[:2] != "__"}
        is_plain = not node.decorator_list and all(isinstance(base, type) for base in bases)
        names[node.name] = inside["__class__"] = type(node.name, tuple(bases), parts) if is_plain else UNKNOWN

    def _assign(self, node: ast.Assign, names: Names) -> None:
        value = self.value(node.value, names)
        for target in node.targets:
            self._bind(target, value, names)

    def _annassign(self, node: ast.AnnAssign, names: Names) -> None:
        if node.value is not None:
            self._bind(node.target, self.value(node.value, names), names)

    def _augassign(self, node: ast.AugAssign, names: Names) -> None:
        old = self.value(node.target, names)
        self._bind(node.target, operated(node.op, old, self.value(node.value, names)), names)

    def _expr(self, node: ast.Expr, names: Names) -> None:
        self.value(node.value, names)

    def _return(self, node: ast.Return, names: Names) -> None:
        raise LeftError(ast.Return, self.value(node.value, names) if node.value else None)

    def _raise(self, node: ast.Raise, names: Names) -> None:
        raise UncountableError("the script refuses its settings")

    def _break(self, node: ast.Break | ast.Continue, names: Names) -> None:
        raise LeftError(type(node))

    _continue = _break

    def _with(self, node: ast.With | ast.Try, names: Names) -> None:
        self.run(node.body, names)

    _try = _with

    def _if(self, node: ast.If, names: Names) -> None:
        if (known := self.holds(node.test, names)) is None:
            self._skip(node, names)
        else:
            self.run(node.body if known else node.orelse, names)

    def _for(self, node: ast.For, names: Names) -> None:
        if (items := elements(self.value(node.iter, names))) is None:
            self._skip(node, names)
        for item in items or ():
            self._bind(node.target, item, names)
            try:
                self.run(node.body, names)
            except LeftError as left:
                if left.how is not ast.Continue:
                    if left.how is ast.Break:
                        break
                    raise

    def _skip(self, node: ast.stmt, names: Names) -> None:
        """Forget what a statement assigns whose condition is unknown."""
        for inner in ast.walk(node):
            if self.depth and isinstance(inner, ast.Call) and isinstance(self.value(inner.func, names), type):
                raise UncountableError(f"line {node.lineno}: what the model has depends on something unknown")
            if isinstance(inner, ast.Name | ast.Attribute) and isinstance(inner.ctx, ast.Store):
                self._bind(inner, UNKNOWN, names)

    _while = _skip

    def _bind(self, target: ast.expr, value: Any, names: Names) -> None:
        """Assign a value to a name, an attribute, an item or several of them."""
        if isinstance(target, ast.Name):
            names[target.id] = value
        elif isinstance(target, ast.Attribute):
            outcome(setattr, self.value(target.value, names), target.attr, value)
        elif isinstance(target, ast.Subscript):
            owner = self.value(target.value, names)
            if isinstance(owner, dict | list | nn.Module):
                key = self.value(target.slice, names)
                outcome(operator.setitem, owner, key if is_flat(key) else UNKNOWN, value)
        elif isinstance(target, ast.Tuple | ast.List):
            items = elements(value)
            if items is None or len(items) != len(target.elts):
                items = [UNKNOWN] * len(target.elts)
            for inner, item in zip(target.elts, items, strict=True):
                self._bind(inner, item, names)

    def _constant(self, node: ast.Constant, names: Names) -> Any:
        return node.value

    def _name(self, node: ast.Name, names: Names) -> Any:
        return names.get(node.id, UNKNOWN)

    def _tuple(self, node: ast.Tuple | ast.List | ast.Set, names: Names) -> Any:
        items = [self.value(item, names) for item in node.elts]
        return tuple(items) if isinstance(node, ast.Tuple) else items

    _list = _set = _tuple

    def _dict(self, node: ast.Dict, names: Names) -> Any:
        keys = [self.value(key, names) if key else UNKNOWN for key in node.keys]
        return _dict_of(keys, [self.value(value, names) for value in node.values])

    def _dictcomp(self, node: ast.DictComp, names: Names) -> Any:
        pairs = self._items_of(ast.Tuple([node.key, node.value], ast.Load()), node.generators, names)
        return UNKNOWN if pairs is UNKNOWN else _dict_of([pair[0] for pair in pairs], [pair[1] for pair in pairs])

    def _unaryop(self, node: ast.UnaryOp, names: Names) -> Any:
        return known_outcome(OPERATORS.get(type(node.op)), self.value(node.operand, names))

    def _binop(self, node: ast.BinOp, names: Names) -> Any:
        return operated(node.op, self.value(node.left, names), self.value(node.right, names))

    def _compare(self, node: ast.Compare, names: Names) -> Any:
        values = [self.value(operand, names) for operand in (node.left, *node.comparators)]
        links = [truth(operated(op, a, b)) for op, a, b in zip(node.ops, values, values[1:], strict=False)]
        return UNKNOWN if None in links else all(links)

    def _boolop(self, node: ast.BoolOp, names: Names) -> Any:
        value: Any = UNKNOWN
        for operand in node.values:
            value = self.value(operand, names)
            known = truth(value)
            if known is None or known is isinstance(node.op, ast.Or):
                break
        return value

    def _ifexp(self, node: ast.IfExp, names: Names) -> Any:
        known = self.holds(node.test, names)
        return UNKNOWN if known is None else self.value(node.body if known else node.orelse, names)

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, names: Names) -> Any:
        return self._items_of(node.elt, node.generators, names)

    _generatorexp = _setcomp = _listcomp

    def _items_of(self, element: ast.expr, loops: list[ast.comprehension], names: Names) -> Any:
        if not loops:
            return [self.value(element, names)]
        items, inside = elements(self.value(loops[0].iter, names)), names.new_child()
        values_there: list[Any] = []
        for item in [UNKNOWN] if items is None else items:
            self._bind(loops[0].target, item, inside)
            tests = [truth(self.value(test, inside)) for test in loops[0].ifs]
            inner = self._items_of(element, loops[1:], inside) if all(test is not False for test in tests) else []
            if items is None or None in tests or inner is UNKNOWN:
                return UNKNOWN
            values_there += inner
        return values_there

    def _attribute(self, node: ast.Attribute, names: Names) -> Any:
        name = ast.unparse(node).removeprefix("torch.nn.")
        name = name if name == ast.unparse(node) else f"nn.{name}"
        if name in LIBRARY:
            return LIBRARY[name]
        owner = self.value(node.value, names)
        is_parent = isinstance(owner, super) or (isinstance(owner, type) and issubclass(owner, nn.Module))
        is_open = node.attr[:2] != "__" or (is_parent and node.attr == "__init__")
        return getattr(owner, node.attr, UNKNOWN) if is_open else UNKNOWN

    def _subscript(self, node: ast.Subscript, names: Names) -> Any:
        owner, key = self.value(node.value, names), self.value(node.slice, names)
        is_open = isinstance(owner, dict | list | tuple | nn.Module)
        return known_outcome(operator.getitem, owner, key) if is_open else UNKNOWN

    def _slice(self, node: ast.Slice, names: Names) -> Any:
        ends = [self.value(end, names) if end else None for end in (node.lower, node.upper, node.step)]
        return UNKNOWN if UNKNOWN in ends else slice(*ends)

    def _call(self, node: ast.Call, names: Names) -> Any:
        name = ast.unparse(node.func)
        values: list[Any] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                values += elements(self.value(argument.value, names)) or [UNKNOWN]
            else:
                values.append(self.value(argument, names))
        keywords = {k.arg: self.value(k.value, names) for k in node.keywords if k.arg}
        if name.endswith(("environ.get", "getenv")):
            key, default = (values + [keywords.get(of) for of in ("key", "default")[len(values) :]])[:2]
            if not isinstance(key, str):
                return UNKNOWN
            self.defaults.setdefault(key, default)
            return self.variables.get(key, default)
        if name == "isinstance" and len(values) == 2 and isinstance(values[0], bool | int | float | str | None):
            # A class of the script is unknown and has no such objects.
            return False if ast.unparse(node.args[1]) in ("Tensor", "torch.Tensor") else UNKNOWN
        if name == "super":
            return super(names.get("__class__"), names.get("self"))
        if name == "getattr" and len(values) > 1:
            is_there = values[0] is UNKNOWN or hasattr(values[0], str(values[1]))
            attribute = self._attribute(ast.Attribute(node.args[0], str(values[1]), ast.Load()), names)
            return values[2] if attribute is UNKNOWN and not is_there and len(values) > 2 else attribute
        called = self.value(node.func, names)
        if isinstance(called, type):
            return self._built(called, values, keywords)
        if getattr(called, "is_followed", False) or (name.endswith(".__init__") and called is not UNKNOWN):
            return called(*values, **keywords)
        if name in LISTS:
            return elements(known_outcome(LISTS[name], *values, **keywords)) or UNKNOWN
        if name in LIBRARY:
            # Nothing has memory here, on whatever device the script puts it.
            keywords.pop("device", None)
            return known_outcome(called, *values, **keywords)
        owner = getattr(called, "__self__", UNKNOWN)
        is_small = all(map(is_flat, values)) and not (isinstance(owner, list) and len(owner) > MOST_ITEMS)
        methods = set().union(*(names for kind, names in METHODS.items() if isinstance(owner, kind)))
        function = NUMBERS.get(name, called if name.rpartition(".")[2] in methods else None)
        return known_outcome(function, *values, **keywords) if is_small else UNKNOWN

    _read = _call

    def _built(self, kind: type, values: list[Any], keywords: dict[str, Any]) -> Any:
        """Return an object of a class of torch or of the script. Raises `BuiltError` if it is the model."""
        is_module = issubclass(kind, nn.Module | nn.Parameter)
        self.depth += is_module
        # Classes of the script may take unknown arguments, as long as no shape depends on them.
        made = (known_outcome if kind in LIBRARY.values() else outcome)(kind, *values, **keywords)
        self.depth -= is_module
        if self.depth and is_module and made is UNKNOWN:
            raise UncountableError(f"{kind.__name__} with unknown arguments")
        if isinstance(made, nn.Module) and not self.depth:
            count = outcome(lambda: sum(parameter.numel() for parameter in made.parameters()))
            if count is UNKNOWN:
                raise UncountableError(f"{kind.__name__} is not built as a module of torch")
            if count >= SMALLEST_MODEL:
                raise BuiltError(count)
        return made


def _dict_of(keys: list[Any], values: list[Any]) -> Any:
    """Return a dict, `UNKNOWN` if a key is too large to be compared."""
    return outcome(dict, zip(keys, values, strict=True)) if all(map(is_flat, keys)) else UNKNOWN
