"""The package's own sources: modules as syntax trees, what they import, and their comments.

The modules are read, not imported, so that a bundle is made of the same text that runs in the framework.
"""

from __future__ import annotations

import ast
import io
import itertools
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import resolve_name
from pathlib import Path
from typing import TypeGuard

from golf.errors import GolfError
from golf.idea_folders import file_of, packages
from golf.paths import ROOT

PACKAGE = "golf"


@dataclass
class Module:
    """One file of the package."""

    name: str  # golf.training.model.gpt
    tree: ast.Module
    names: dict[str, tuple[str, str]] = field(default_factory=dict)  # name imported from the package → module, name
    lazy: set[str] = field(default_factory=set)  # modules that are imported within functions only


def read_modules(entries: Sequence[str]) -> list[Module]:
    """Return the modules of `entries` and all that they import, each after those that it imports at the top.

    The last entry, which runs the others, is the last of all.
    """
    found: dict[str, Module] = {}
    ordered: list[Module] = []
    pending: list[str] = list(entries)

    def visit(name: str) -> None:
        if name in found:
            return
        module = found[name] = _read(name)
        for needed in dict.fromkeys(source for source, _ in module.names.values()):
            if needed not in module.lazy:
                visit(needed)
        ordered.append(module)
        # An import within a function runs late, often because of a cycle, so that its module may come at any place.
        pending.extend(sorted(module.lazy))

    while pending:
        visit(pending.pop(0))
    ordered.sort(key=lambda module: module.name == entries[-1])
    return ordered


def _read(name: str) -> Module:
    path = source_of(name)
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            # Ideas may import their other modules by their place.
            node.module, node.level = resolve_name("." * node.level + (node.module or ""), name.rpartition(".")[0]), 0
    # Names that are imported for type checkers only are those of annotations, which are never evaluated.
    tree.body = [n for n in tree.body if not isinstance(n, ast.If) or ast.unparse(n.test) != "TYPE_CHECKING"]
    module = Module(name, tree)
    at_the_top = {node.module for node in tree.body if is_ours(node)}
    for node in filter(is_ours, ast.walk(tree)):
        for alias in node.names:
            if not file_in(f"{node.module}.{alias.name}") and alias.name != "*":
                module.names[alias.asname or alias.name] = (str(node.module), alias.name)
            elif node in tree.body:
                raise cannot_follow(node)
    module.lazy = {source for source, _ in module.names.values()} - at_the_top
    return module


def is_ours(node: object) -> TypeGuard[ast.ImportFrom]:
    """Tell whether `node` imports names from this package or from an idea."""
    return isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in (PACKAGE, *packages())


def cannot_follow(node: ast.ImportFrom) -> GolfError:
    """Return the error for the import of a module as a value, whose names a bundle does not have."""
    return GolfError(f"The export cannot follow `{ast.unparse(node)}`: import names from modules instead.")


def source_of(name: str) -> Path:
    """Return the file of module `name`; raise `GolfError` for one outside the package."""
    if (path := file_in(name)) is None:
        raise GolfError(f"{name} is no module of {PACKAGE} or of an idea, so it cannot be exported: make it an idea.")
    return path


def file_in(name: str) -> Path | None:
    """Return the file of module `name`, None if it is no module of ours but something defined in one."""
    path = ROOT / Path(*name.split("."))
    own = [path.with_suffix(".py"), path / "__init__.py"] if name.startswith(f"{PACKAGE}.") else []
    return next((found for found in (*own, file_of(name)) if found and found.is_file()), None)


def attach_comments(module: Module) -> None:
    """Give every statement the comments above it (`above`) and behind it or within it (`behind`), as attributes."""
    source = source_of(module.name).read_text(encoding="utf-8")
    comments = {
        token.start[0]: (token.string, token.line[: token.start[1]].strip() == "")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        # Marks for tools mean nothing to a reader of the script.
        if token.type == tokenize.COMMENT and not token.string.startswith(("# fmt:", "# noqa", "# type:"))
    }
    for node in [node for node in ast.walk(module.tree) if isinstance(node, ast.stmt)]:
        # Comments inside a block belong to the statements in it.
        end = node.lineno if hasattr(node, "body") else node.end_lineno or node.lineno
        own = range(node.lineno, end + 1)
        node.behind = [comments[line][0] for line in own if line in comments]  # type: ignore[attr-defined]
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        above = itertools.takewhile(lambda line: comments.get(line, ("", False))[1], range(first - 1, 0, -1))
        node.above = [comments[line][0] for line in above][::-1]  # type: ignore[attr-defined]
