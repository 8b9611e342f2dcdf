"""Code of a script without what does not run where its settings decide a branch.

A branch that a setting switches off does nothing, nor does a statement behind one that leaves. `reduced` takes both
away, and keeps whatever it cannot decide.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from golf.field.script_switches import FUNCTIONS, Switches, is_cheap

_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def reduced(body: Sequence[ast.stmt], known: Switches, *, keeps_tests: bool = False) -> list[ast.stmt]:
    """Return statements without the branches that do not run.

    With `keeps_tests` a branch that runs stays behind its test.
    """
    left = list[ast.stmt]()
    for node in body:
        if isinstance(node, ast.If) and (holds := known.holds(node.test)) is not None:
            branch = reduced(node.body if holds else node.orelse, known, keeps_tests=keeps_tests)
            # Whatever is reduced once more takes the same branch.
            test = node.test if holds else ast.UnaryOp(ast.Not(), node.test)
            left += [ast.If(test, branch, [ast.Break()])] if keeps_tests and branch else branch
            if branch and isinstance(branch[-1], _LEAVES):
                break
            continue
        left.append(_plain(node, known, keeps_tests))
        if isinstance(node, _LEAVES):
            break
    return left


def _plain(node: Any, known: Switches, keeps_tests: bool) -> Any:
    """Return a node without what does not run in it, the same one where all of it may run: its digest is known."""
    if isinstance(node, ast.IfExp) and not keeps_tests and (holds := known.holds(node.test)) is not None:
        return _plain(node.body if holds else node.orelse, known, keeps_tests)
    if isinstance(node, ast.Call) and not keeps_tests and (result := _result(node, known)) is not None:
        return result
    inside = known.within(node) if isinstance(node, FUNCTIONS) else known
    changed = dict[str, Any]()
    for key, value in ast.iter_fields(node):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            new: Any = reduced(value, inside, keeps_tests=keeps_tests)
        elif isinstance(value, list):
            new = [_plain(item, inside, keeps_tests) if isinstance(item, ast.AST) else item for item in value]
        elif key == "test" and not keeps_tests:
            new = _open(value, inside)
        else:
            new = _plain(value, inside, keeps_tests) if isinstance(value, ast.AST) else value
        if not is_same(new, value):
            changed[key] = new
    return type(node)(**{**dict(ast.iter_fields(node)), **changed}) if changed else node


def _result(node: ast.Call, known: Switches) -> ast.expr | None:
    """Return what a call returns of a function that computes nothing, None for other calls."""
    is_own = isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") == "self"
    found = known.results.get(node.func.attr if is_own else getattr(node.func, "id", ""))  # type: ignore[attr-defined]
    values = [*node.args, *(keyword.value for keyword in node.keywords)]
    if found is None or any(isinstance(value, ast.Starred) for value in values):
        return None
    function, result = found
    order = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][is_own:]
    given = dict(zip(order, node.args, strict=False)) | {k.arg: k.value for k in node.keywords}
    if isinstance(result, ast.Name):
        # What is returned may be any call, and the others are left out.
        result = given.pop(result.id, None)
    return result if all(map(is_cheap, given.values())) else None


def is_same(new: Any, old: Any) -> bool:
    """Tell whether two values of a node's field are the very same, lists item by item."""
    if isinstance(old, list):
        return len(new) == len(old) and all(a is b for a, b in zip(new, old, strict=True))
    return new is old


def _open(test: ast.expr, known: Switches) -> ast.expr:
    """Return a test, which nothing decides, without the sides that something does."""
    if not isinstance(test, ast.BoolOp):
        return _plain(test, known, False)
    sides = [_open(side, known) for side in _undecided(test, known)]
    if len(sides) == 1:
        return sides[0]
    return test if is_same(sides, test.values) else ast.BoolOp(test.op, sides)


def _undecided(test: ast.BoolOp, known: Switches) -> Iterator[ast.expr]:
    for side in test.values:
        # The other truth decides the whole test.
        if known.holds(side) is None:
            yield side
