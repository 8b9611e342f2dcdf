"""The environment variables of a public script: their defaults, and those that it declares and never reads."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from golf.errors import GolfError
from golf.foreign.script_reader import Script
from golf.foreign.script_structure import script_structure
from golf.settings.translation import Structure

_READERS = ("get", "getenv")


@dataclass
class ScriptVariables:
    """Variables by name."""

    defaults: dict[str, str | None] = field(default_factory=dict)  # as text; None for one that is computed
    unread: set[str] = field(default_factory=set)  # put into a setting that nothing uses
    is_script: bool = True  # False: settings that a log prints, without the script
    model_params: int | None = None  # as a log counts them
    structure: Structure = field(default_factory=Structure)  # what it has without a variable


def variables_of_script(script: Script, name: str) -> ScriptVariables:
    """Return the variables of `script`, which errors call `name`. Raises `GolfError` if it cannot be read."""
    if script.tree is None:
        raise GolfError(f"{name} cannot be read as a script: {script.problem}.")
    if script.is_still_packed:
        raise GolfError(f"{name} is packed in a way that is not read here: name the unpacked script.")
    found = ScriptVariables()
    holders: dict[str, set[str | None]] = {}  # variable → settings that hold it; None for any other use
    # The first walk notes the name that each expression is assigned to; the second one finds variables in these
    # expressions.
    owners: dict[int, str] = {}
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [getattr(target, "attr", getattr(target, "id", "")) for target in targets]
            if len(names) == 1 and names[0]:
                owners |= {id(inner): names[0] for inner in ast.walk(node.value)}
    for node in ast.walk(script.tree):
        if (variable := _variable(node)) is not None:
            name, default = variable
            found.defaults.setdefault(name, default)
            holders.setdefault(name, set()).add(owners.get(id(node)))
    used = _used_names(script.tree)
    found.unread = {name for name, of in holders.items() if None not in of and not of & used}
    found.structure = script_structure(script.tree, found.defaults)
    return found


def _variable(node: ast.AST) -> tuple[str, str | None] | None:
    """Return (name, default) of a call or subscript that reads the environment, None for anything else."""
    if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in _READERS:
        if "environ" not in ast.unparse(node.func) and "getenv" not in ast.unparse(node.func):
            return None
        arguments = [_constant(a) for a in node.args]
        if arguments and isinstance(arguments[0], str):
            default = arguments[1] if len(arguments) > 1 else None
            return arguments[0], None if default is None else str(default)
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("environ"):
        key = node.slice
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            return key.value, None
    return None


def _constant(node: ast.expr) -> Any:
    """Return the value of a constant or of a product of numbers, such as `2048 * 48 * 8`; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = _constant(node.left), _constant(node.right)
        if isinstance(left, int | float) and isinstance(right, int | float):
            return left * right
    return None


def _used_names(tree: ast.Module) -> set[str]:
    """Return the names that the script loads, as variables, attributes or texts such as those of `getattr`."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found
