"""What nothing needs falls off: definitions that are never reached, methods and settings that nobody names."""

from __future__ import annotations

import ast

from golf.artifact.script.calls import callee_name, callees
from golf.artifact.script.flat import Flat
from golf.artifact.script.scopes import bound_names, parameters, walk

CALLED_BY_OTHERS = {"forward"}  # torch calls it


def shake(flat: Flat, settings: set[str]) -> None:
    """Drop in place until nothing more falls. `settings` are classes whose fields go if no one reads them."""
    while True:
        drop_unreached(flat)
        changes = [_drop_unnamed_members(flat, settings), _drop_idle_assignments(flat)]
        if not any(changes) and not _drop_unused_parameters(flat):
            break
    used = {name.id for node in flat.statements() for name in flat.uses(node).names}
    flat.imports = {name: node for name, node in flat.imports.items() if name in used}
    flat.sections = [section for section in flat.sections if section.body]


def drop_unreached(flat: Flat) -> None:
    """Keep what the call of main needs, and what that needs."""
    owner = {name: node for node in flat.statements() for name in bound_names(node)}
    reached: set[int] = set()
    pending = [node for node in flat.statements() if not bound_names(node)]
    while pending:
        node = pending.pop()
        if id(node) not in reached:
            reached.add(id(node))
            pending += [owner[name.id] for name in flat.uses(node).names if name.id in owner]
    for section in flat.sections:
        section.body = [node for node in section.body if id(node) in reached]


def _drop_unnamed_members(flat: Flat, settings: set[str]) -> bool:
    named, dropped = _named(flat), False
    for node in flat.statements():
        if isinstance(node, ast.ClassDef):
            kept = [n for n in node.body if not _is_unnamed(n, node.name in settings, named)]
            if len(kept) < len(node.body):
                node.body, dropped = kept or [ast.Pass()], True
                flat.changed(node)
    return dropped


def _named(flat: Flat) -> set[str]:
    """Attributes that somebody reads, calls or could mean."""
    return CALLED_BY_OTHERS.union(*(flat.uses(node).attributes for node in flat.statements()))


def _is_unnamed(node: ast.stmt, is_settings: bool, named: set[str]) -> bool:
    if isinstance(node, ast.FunctionDef):
        return node.name not in named and not (node.name.startswith("__") and node.name.endswith("__"))
    return is_settings and isinstance(node, ast.AnnAssign) and ast.unparse(node.target) not in named


def _drop_idle_assignments(flat: Flat) -> bool:
    """Plain assignments to locals, and to attributes of `self`, that nobody reads any more."""
    named, dropped = _named(flat), False
    own = {node.name for node in flat.statements() if isinstance(node, ast.ClassDef)} | {"nn.Module"}
    for statement in flat.statements():
        is_own = isinstance(statement, ast.ClassDef) and own.issuperset(map(ast.unparse, statement.bases))
        for function in [n for n in walk(statement) if isinstance(n, ast.FunctionDef)]:
            read = {n.id for n in walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
            attributes = named if is_own else {n.attr for n in walk(function) if isinstance(n, ast.Attribute)}
            read |= {f"self.{name}" for name in attributes}
            for block in _blocks(function):
                kept = [part for part in block if not _is_idle(part, read)]
                if len(kept) < len(block):
                    block[:] = kept or [ast.Pass()]
                    dropped = True
                    flat.changed(statement)
            for item in (item for n in walk(function) if isinstance(n, ast.With) for item in n.items):
                if isinstance(item.optional_vars, ast.Name) and item.optional_vars.id not in read:
                    item.optional_vars, dropped = None, True
                    flat.changed(statement)
    return dropped


def _blocks(function: ast.FunctionDef) -> list[list[ast.stmt]]:
    """The bodies of everything in a function but classes."""
    nodes = [n for n in walk(function) if not isinstance(n, ast.ClassDef | ast.Lambda | ast.IfExp)]
    return [b for n in nodes for name in ("body", "orelse") if isinstance(b := getattr(n, name, None), list) and b]


def _is_idle(node: ast.stmt, read: set[str]) -> bool:
    """Whether all of an assignment can go; takes out what can where only a part of it can."""
    if isinstance(node, ast.AnnAssign):
        return node.value is not None and _is_unread(node.target, read) and is_plain(node.value)
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return False
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Name) and isinstance(value, ast.Name) and value.id == target.id:
        return True
    if isinstance(target, ast.Name | ast.Attribute):
        return _is_unread(target, read) and is_plain(value)
    if not (isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts)):
        return False
    pairs = zip(target.elts, value.elts, strict=True)
    kept = [(t, v) for t, v in pairs if not (_is_unread(t, read) and is_plain(v))]
    if len(kept) == 1:
        node.targets, node.value = [kept[0][0]], kept[0][1]
    else:
        target.elts, value.elts = [t for t, _ in kept], [v for _, v in kept]
    return not kept


def _is_unread(target: ast.expr, read: set[str]) -> bool:
    """Whether `target` is a local or an attribute of `self`, which `read` has with its dot, that nobody reads."""
    is_own = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    return (is_own or isinstance(target, ast.Name)) and ast.unparse(target) not in read


def is_plain(node: ast.expr) -> bool:
    """Whether evaluating `node` does nothing."""
    if isinstance(node, ast.List | ast.Tuple):
        return all(map(is_plain, node.elts))
    if isinstance(node, ast.Dict):
        return not node.keys
    if isinstance(node, ast.BoolOp | ast.IfExp | ast.Compare):
        return all(is_plain(part) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr))
    return isinstance(node, ast.Name | ast.Constant) or (isinstance(node, ast.Attribute) and is_plain(node.value))


def _drop_unused_parameters(flat: Flat) -> bool:
    """Parameters that a function does not read, with what its calls pass for them."""
    found = callees(flat)
    owners: dict[str, list[tuple[ast.Call, ast.stmt]]] = {}
    for statement in flat.statements():
        for call in flat.uses(statement).calls:
            owners.setdefault(callee_name(call), []).append((call, statement))
    defined = {id(f): s for s in flat.statements() for f in (s, *getattr(s, "body", ()))}
    dropped = False
    for name, callee in found.items():
        own = owners.get(name, [])
        read = {n.id for part in callee.function.body for n in walk(part) if isinstance(n, ast.Name)}
        for parameter in [p for p in parameters(callee.function)[callee.skipped :] if p.arg not in read]:
            bounds = [callee.bind(call) for call, _ in own]
            if any(b is None or not _droppable(b, parameter.arg) for b in bounds):
                continue
            for (call, statement), bound in zip(own, bounds, strict=True):
                passed = bound[parameter.arg] if bound else None
                call.args = [a for a in call.args if a is not passed]
                call.keywords = [k for k in call.keywords if k.value is not passed]
                flat.changed(statement)
            _remove(callee.function.args, parameter)
            flat.changed(defined[id(callee.function)])
            dropped = True
    return dropped


def _droppable(bound: dict[str, object], name: str) -> bool:
    passed = bound.get(name)
    return not isinstance(passed, ast.expr) or is_plain(passed)


def _remove(args: ast.arguments, parameter: ast.arg) -> None:
    if parameter in args.kwonlyargs:
        i = args.kwonlyargs.index(parameter)
        del args.kwonlyargs[i], args.kw_defaults[i]
    elif parameter in args.args:
        i = args.args.index(parameter) - (len(args.args) - len(args.defaults))
        args.args.remove(parameter)
        if i >= 0:
            del args.defaults[i]
