"""The functions of a bundle with all their uses. Methods count where their name can be that of nothing else."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from dataclasses import dataclass

from torch import Tensor, nn

from golf.artifact.script.flat import Flat
from golf.artifact.script.syntax import walk

# A method with such a name may be that of another package's object.
FOREIGN = {name for kind in (dict, list, set, str, bytes, Tensor, nn.Module) for name in dir(kind)}


@dataclass(frozen=True)
class Function:
    """A function, method or constructor."""

    node: ast.FunctionDef
    is_method: bool  # its first parameter is what stands before the dot, or the new object
    uses: list[ast.expr]  # the names or attributes that mean it
    calls: list[ast.Call]  # those of `uses` that are called


def functions_of(flat: Flat) -> list[Function]:
    """Return the functions of `flat` whose every use can be told."""
    statements = list(flat.statements())
    nodes = [node for statement in statements for node in walk(statement)]
    keys = {id(name): name.id for statement in statements for name in flat.uses(statement).names}
    # A method's key has a dot, so that a function of its name is another one.
    keys |= {id(node): f".{node.attr}" for node in nodes if isinstance(node, ast.Attribute)}
    uses, calls = defaultdict(list), {id(node.func): node for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if isinstance(node, ast.expr) and id(node) in keys:
            uses[keys[id(node)]].append(node)
    found = [(node.name, node, False) for node in statements if isinstance(node, ast.FunctionDef)]
    for owner in (node for node in statements if isinstance(node, ast.ClassDef)):
        methods = (part for part in owner.body if isinstance(part, ast.FunctionDef))
        found += [(owner.name if part.name == "__init__" else f".{part.name}", part, True) for part in methods]
    times = Counter(key for key, _, _ in found)
    # `getattr` may get a method by its name.
    times.update(f".{node.value!s}" for node in nodes if isinstance(node, ast.Constant))
    return [
        Function(node, is_method, uses[key], [calls[id(use)] for use in uses[key] if id(use) in calls])
        for key, node, is_method in found
        if times[key] == 1 and key.removeprefix(".") not in (FOREIGN if is_method else ())
    ]
