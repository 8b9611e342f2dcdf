"""Where the functions of a bundle are called, and with what: the ground for saying that a parameter never changes."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass

from golf.artifact.script.flat import Flat
from golf.artifact.script.scopes import parameters

TRANSPARENT = ("no_grad", "enable_grad", "contextmanager")  # decorators that pass arguments on
OMITTED = object()  # the parameter gets its default


@dataclass
class Callee:
    """A function of the bundle all of whose calls are seen. `name` is its own, or its class's for an `__init__`."""

    name: str
    function: ast.FunctionDef
    skipped: int  # leading parameters that a call does not pass: self

    def bind(self, call: ast.Call) -> dict[str, object] | None:
        """Parameter → the expression passed for it, or `OMITTED`; None where the call unpacks arguments."""
        if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
            return None
        names = [a.arg for a in (*self.function.args.posonlyargs, *self.function.args.args)][self.skipped :]
        if len(call.args) > len(names) or self.function.args.vararg or self.function.args.kwarg:
            return None
        bound: dict[str, object] = {a.arg: OMITTED for a in parameters(self.function)[self.skipped :]}
        bound.update(zip(names, call.args, strict=False))
        bound.update({str(k.arg): k.value for k in call.keywords})
        return bound if set(bound) <= {a.arg for a in parameters(self.function)} else None

    def default(self, name: str) -> ast.expr | None:
        """The default of a parameter."""
        a = self.function.args
        positional = [*a.posonlyargs, *a.args]
        pairs = [*zip(positional[len(positional) - len(a.defaults) :], a.defaults, strict=True)]
        pairs += [(arg, value) for arg, value in zip(a.kwonlyargs, a.kw_defaults, strict=True) if value is not None]
        return next((value for arg, value in pairs if arg.arg == name), None)


def callees(flat: Flat) -> dict[str, Callee]:
    """Functions, classes and methods that are only ever called, never passed on, by the name in a call.

    A name that is also somebody's local one is left out: calls of the two could be taken for each other.
    """
    functions = {n.name: Callee(n.name, n, 0) for n in flat.statements() if isinstance(n, ast.FunctionDef)}
    classes = [n for n in flat.statements() if isinstance(n, ast.ClassDef)]
    methods: list[Callee] = []
    for node in classes:
        for f in node.body:
            if isinstance(f, ast.FunctionDef) and f.name == "__init__":
                functions[node.name] = Callee(node.name, f, 1)
            elif isinstance(f, ast.FunctionDef) and not f.name.startswith("__") and not f.decorator_list:
                methods.append(Callee(f.name, f, 1))
    used_otherwise = {name for n in flat.statements() for name in flat.uses(n).passed_on | flat.uses(n).local}
    found = {name: callee for name, callee in functions.items() if name not in used_otherwise}
    times = Counter(m.name for m in methods)
    for method in methods:
        if times[method.name] == 1 and f".{method.name}" not in used_otherwise and method.name != "forward":
            found[f".{method.name}"] = method
    return {name: c for name, c in found.items() if _plain(c.function)}


def callee_name(call: ast.Call) -> str:
    """The key of `callees` that a call may mean."""
    if isinstance(call.func, ast.Attribute):
        return f".{call.func.attr}"
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _plain(function: ast.FunctionDef) -> bool:
    """Whether calls reach the function as written, whatever its decorators do around it."""
    return all(any(name in ast.unparse(d) for name in TRANSPARENT) for d in function.decorator_list)
