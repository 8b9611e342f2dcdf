"""The functions of a bundle with all their uses. Methods count where their name can be that of nothing else.

The fields of a dataclass are the parameters of its constructor.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from golf.artifact.script.flat import Flat
from golf.artifact.script.syntax import DOTTED, walk

Found = tuple[str, ast.FunctionDef, bool, ast.ClassDef | None]  # name, node, is_method, fields of a `Function`
NAMING_TYPES = ast.AnnAssign | ast.Subscript
# A method with such a name may be that of another package's object.
FOREIGN = {name for kind in (dict, list, set, str, bytes, Path, np.ndarray, Tensor, nn.Module) for name in dir(kind)}


@dataclass(frozen=True)
class Function:
    """A function, method or constructor."""

    node: ast.FunctionDef
    is_method: bool  # its first parameter is what stands before the dot, or the new object
    uses: list[ast.expr]  # the names or attributes that mean it
    calls: list[ast.Call]  # those of `uses` that are called
    fields: ast.ClassDef | None = None  # the dataclass of a constructor that is not written out


def functions_of(flat: Flat) -> list[Function]:
    """Return the functions of `flat` whose every use can be told."""
    statements = list(flat.statements())
    nodes = [node for statement in statements for node in walk(statement)]
    keys = {id(name): name.id for statement in statements for name in flat.uses(statement).names}
    # A method's key has a dot, so that a function of its name is another one.
    keys |= {id(node): f".{node.attr}" for node in nodes if isinstance(node, ast.Attribute)}
    # Naming a type makes no object of it.
    types = [n.annotation if isinstance(n, ast.AnnAssign) else n.slice for n in nodes if isinstance(n, NAMING_TYPES)]
    of_values = keys.keys() - {id(part) for node in types for part in walk(node)}
    uses, calls = defaultdict(list), {id(node.func): node for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if isinstance(node, ast.expr) and id(node) in of_values:
            uses[keys[id(node)]].append(node)
    found: list[Found] = [(node.name, node, False, None) for node in statements if isinstance(node, ast.FunctionDef)]
    for owner in (node for node in statements if isinstance(node, ast.ClassDef)):
        methods = (part for part in owner.body if isinstance(part, ast.FunctionDef))
        found += [(owner.name if part.name == "__init__" else f".{part.name}", part, True, None) for part in methods]
        # A base would bring parameters of its own.
        if "dataclass" in " ".join(map(ast.unparse, owner.decorator_list)) and not owner.bases:
            found.append((owner.name, _constructor(owner, nodes, calls), True, owner))
    times = Counter(key for key, *_ in found)
    # `getattr` may get a method by its name.
    times.update(f".{node.value!s}" for node in nodes if isinstance(node, ast.Constant))
    return [
        Function(node, is_method, uses[key], [calls[id(use)] for use in uses[key] if id(use) in calls], fields)
        for key, node, is_method, fields in found
        if times[key] == 1 and key.removeprefix(".") not in (FOREIGN if is_method else ())
    ]


def field_names(owner: ast.ClassDef) -> dict[str, ast.AnnAssign]:
    """Return the fields of the dataclass `owner` that its constructor takes."""
    fields = (part for part in owner.body if isinstance(part, ast.AnnAssign))
    return {ast.unparse(f.target): f for f in fields if not re.search("ClassVar|init=False", ast.unparse(f))}


def _constructor(owner: ast.ClassDef, nodes: Sequence[ast.AST], calls: Mapping[int, ast.Call]) -> ast.FunctionDef:
    """Return the constructor of a dataclass as a function that reads the fields that something in `nodes` reads."""
    fields = field_names(owner)
    others = [call for call in calls.values() if ast.unparse(call.func) != owner.name]
    read = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    read |= {str(keyword.arg) for call in others for keyword in call.keywords}
    texts = (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    read.update(word for text in texts if DOTTED.fullmatch(text) for word in re.findall(r"\w+", text))
    args = ast.arguments([], [*map(ast.arg, ("self", *fields))], None, [], [], None, [])
    args.defaults = [field.value for field in fields.values() if field.value]
    # Written to as well, so that no constant takes the place of what is read elsewhere.
    body = [ast.Expr(ast.Name(name, ast.Store())) for name in fields if name in read]
    return ast.FunctionDef("__init__", args, [ast.Pass(), *body], [])
