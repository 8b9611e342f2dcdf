"""Reads of the environment in a public script: by `os.environ`, by another name for it, or by a function of its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_READERS = {"os.environ.get", "os.getenv", "environ.get", "getenv"}
_ALIASES = {"os.environ.get", "os.getenv", "os.environ"}
_NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")  # of a variable
Reader = tuple[list[str], str, str]  # parameters of a function, with the one of the variable and of its default


class Read(ast.Call):
    """A call of a script's own function that reads the variable which an argument names."""

    _fields = (*ast.Call._fields, "variable")
    variable: tuple[str, str | None]


def variable_of(node: ast.AST) -> tuple[str, str | None] | None:
    """Return (name, default) of a call or subscript that reads the environment, None for anything else."""
    if isinstance(node, Read):
        return node.variable
    if isinstance(node, ast.Call) and _is_read(node.func):
        given = dict(zip(("key", "default"), node.args, strict=False))
        given |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        name = _constant(given["key"]) if "key" in given else None
        if isinstance(name, str):
            return name, _text(_constant(given["default"])) if "default" in given else None
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("environ"):
        key = node.slice
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            return key.value, None
    return None


def _is_read(called: ast.expr) -> bool:
    word = getattr(called, "attr", getattr(called, "id", ""))
    return word in ("get", "getenv") and ast.unparse(called) in _READERS


def reads_environment(node: ast.AST) -> bool:
    """Tell whether something in a node reads the environment, also one whose variable is not known."""
    return any(
        isinstance(inner, Read) or getattr(inner, "attr", getattr(inner, "id", "")) in ("environ", "getenv")
        for inner in ast.walk(node)
    )


def with_plain_reads(tree: ast.Module) -> ast.Module:
    """Return a script that names `os.environ` where it has another name for it, and has a `Read` for its own readers.

    The nodes of `tree` are changed in place.
    """
    tree = _Aliases(_aliases(tree)).visit(tree)
    readers = dict[str, Reader]()
    # A reader may call another one.
    while more := {name: of for name, of in _own_readers(tree, readers) if name not in readers}:
        readers |= more
    return _Reads(readers).visit(tree) if readers else tree


def names_in_texts(tree: ast.Module) -> set[str]:
    """Return the texts of a script that may be names of variables, if it reads some that no constant names."""
    texts = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return {text for text in texts if _NAME.fullmatch(text)} if any(map(_reads_any, ast.walk(tree))) else set()


def _reads_any(node: ast.AST) -> bool:
    """Tell whether a node reads the environment by a name that is computed."""
    if isinstance(node, ast.Call) and _is_read(node.func):
        return bool(node.args) and not isinstance(node.args[0], ast.Constant)
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        return ast.unparse(node.value) == "os.environ" and not isinstance(node.slice, ast.Constant)
    return False


def _aliases(tree: ast.Module) -> dict[str, ast.expr]:
    """Return what stands for the names that are always another word for the environment or a read of it."""
    found, stores = dict[str, ast.expr](), list[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and (name := _target(node)) and ast.unparse(node.value) in _ALIASES:
            found[name] = node.value
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            stores.append(node.id)
        elif isinstance(node, ast.arg):
            stores += [node.arg] * 2
    return {name: value for name, value in found.items() if stores.count(name) == 1}


class _Aliases(ast.NodeTransformer):
    def __init__(self, of: Mapping[str, ast.expr]):
        self.of = of

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.of.get(node.id, node) if isinstance(node.ctx, ast.Load) else node


def _own_readers(tree: ast.Module, known: Mapping[str, Any]) -> Iterator[tuple[str, Reader]]:
    """Yield functions that read a variable which a parameter names: their name, parameters, that one, the default's."""
    for node in ast.walk(tree):
        function: Any = node
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            name, function = _target(node), node.value
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name = node.name
        else:
            continue
        parameters = [argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)]
        for inner in ast.walk(function):
            key, default = _key_of(inner, known)
            if key in parameters:
                others = [p for p in parameters if p != key]
                by_name = [p for p in others if "default" in p or p in ("d", "fallback")]
                yield name, (parameters, key, default if default in others else "".join((by_name or others)[:1]))
                break


def _key_of(node: ast.AST, known: Mapping[str, Any]) -> tuple[str, str]:
    """Return the names that a read of the environment has for its variable and its default, empty for constants."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and ast.unparse(node.value) == "os.environ":
        return getattr(node.slice, "id", ""), ""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in (*_READERS, *known):
        names = [getattr(argument, "id", "") for argument in node.args]
        return (names[0] if names else ""), (names[1] if len(names) > 1 else "")
    return "", ""


class _Reads(ast.NodeTransformer):
    def __init__(self, readers: Mapping[str, Reader]):
        self.readers = readers

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if (reader := self.readers.get(getattr(node.func, "id", ""))) is None:
            return node
        parameters, key, default = reader
        given = dict(zip(parameters, node.args, strict=False)) | {k.arg: k.value for k in node.keywords if k.arg}
        name = _constant(given[key]) if key in given else None
        if not isinstance(name, str):
            return node
        text = _text(_constant(given[default])) if default in given else None
        make: Callable[..., Read] = Read
        return ast.copy_location(make(node.func, node.args, node.keywords, (name, text)), node)


def _target(node: ast.Assign) -> str:
    """Return the one name that a statement assigns to, empty for others."""
    return getattr(node.targets[0], "id", "") if len(node.targets) == 1 else ""


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _constant(node: ast.expr) -> Any:
    """Return the value of a constant or of a product of numbers, such as `2048 * 48 * 8`; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = _constant(node.left), _constant(node.right)
        if isinstance(left, int | float) and isinstance(right, int | float):
            return left * right
    return None
