"""Tree shaking: definitions that are never reached go, and methods and settings that nobody names."""

from __future__ import annotations

import ast
import builtins

from golf.submission.script.evaluation import assignments
from golf.submission.script.flat import Flat
from golf.submission.script.syntax import bound_names

CALLED_BY_OTHERS = {"forward", "close"}  # methods that torch and contextlib call


def shake(flat: Flat, settings: set[str]) -> None:
    """Drop in place until nothing more can go. `settings` are the classes whose fields go if nobody reads them."""
    drop_unreached(flat)
    while _drop_unnamed_members(flat, settings):
        drop_unreached(flat)
    _drop_types_without_use(flat)
    used = {name.id for node in flat.statements() for name in [*flat.uses(node).names, *flat.uses(node).types]}
    flat.imports = {name: node for name, node in flat.imports.items() if name in used}
    flat.sections = [section for section in flat.sections if section.body]


def drop_unreached(flat: Flat) -> None:
    """Keep what the call of main needs, and what that needs in turn.

    A class that only annotations of functions name is not needed: no object of it is made.
    """
    owner = {name: node for node in flat.statements() for name in bound_names([node])}
    aliases = {name: node for name, node in owner.items() if isinstance(node, ast.Assign)}
    reached: set[int] = set()
    pending = [node for node in flat.statements() if not bound_names([node])]
    while pending:
        node = pending.pop()
        if id(node) not in reached:
            reached.add(id(node))
            pending += [owner[name.id] for name in flat.uses(node).names if name.id in owner]
            pending += [aliases[name.id] for name in flat.uses(node).types if name.id in aliases]
    for section in flat.sections:
        section.body = [node for node in section.body if id(node) in reached]


def _drop_types_without_use(flat: Flat) -> None:
    """Drop annotations of functions that name a class which is not there any more."""
    there = {name for node in flat.statements() for name in bound_names([node])} | {*flat.imports, *dir(builtins)}
    for statement in flat.statements():
        gone = {name.id for name in flat.uses(statement).types} - there
        for node in ast.walk(statement) if gone else ():
            for name in ("annotation", "returns") if isinstance(node, ast.arg | ast.FunctionDef) else ():
                kind = getattr(node, name, None)
                if kind and any(isinstance(part, ast.Name) and part.id in gone for part in ast.walk(kind)):
                    setattr(node, name, None)
        flat.changed(statement)


def _drop_unnamed_members(flat: Flat, settings: set[str]) -> bool:
    """Drop methods, constants of classes and fields of `settings` that nothing names; tell if any was."""
    named = CALLED_BY_OTHERS.union(*(flat.uses(node).attributes for node in flat.statements()))
    dropped = False
    for node in (node for node in flat.statements() if isinstance(node, ast.ClassDef)):
        makers = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
        idle = [(node.body, part) for part in node.body if _is_unnamed(part, node.name in settings, named)]
        idle += [(maker.body, part) for maker in makers for part in maker.body if _is_unread(part, named)]
        for body, part in idle:
            body[:] = [other for other in body if other is not part] or [ast.Pass()]
            dropped = True
            flat.changed(node)
    return dropped


def _is_unread(node: ast.stmt, named: set[str]) -> bool:
    """Tell whether a statement of a constructor only gives `self` an attribute that nothing names, without a call."""
    pairs = [] if any(isinstance(part, ast.Call) for part in ast.walk(node)) else list(assignments(node))
    targets = [target for target, _ in pairs if isinstance(target, ast.Attribute) and target.attr not in named]
    return len(targets) == len(pairs) == 1 and ast.unparse(targets[0].value) == "self"


def _is_unnamed(node: ast.stmt, is_setting: bool, named: set[str]) -> bool:
    if isinstance(node, ast.FunctionDef):
        if isinstance(node.body[-1], ast.Raise) and ast.unparse(node.body[-1]) == "raise NotImplementedError":
            return True
        # Python itself calls methods such as __init__.
        return node.name not in named and not (node.name.startswith("__") and node.name.endswith("__"))
    if isinstance(node, ast.AnnAssign):
        is_constant = ast.unparse(node.annotation).startswith("ClassVar")
        return (is_setting or is_constant) and ast.unparse(node.target) not in named
    return isinstance(node, ast.Assign) and all(ast.unparse(target) not in named for target in node.targets)
