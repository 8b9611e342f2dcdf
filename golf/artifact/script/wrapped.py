"""A bundle as the script whose bytes count: minified, compressed, self-extracting."""

from __future__ import annotations

import ast
import base64
import builtins
import bz2
import re

import python_minifier

from golf.artifact.script.compact import inline_settings, pass_by_position
from golf.artifact.script.facts import Facts
from golf.artifact.script.flat import Flat
from golf.artifact.script.shake import shake

PACKED = re.compile(r"b85decode\('([^']*)'\)")


def minified(flat: Flat, facts: Facts, settings: set[str]) -> str:
    """The program without what only readers need; changes `flat`. `settings` are classes as for `shake`."""
    inline_settings(flat, facts)
    stripper = _Stripper()
    for section in flat.sections:
        section.body = [stripper.visit(node) for node in section.body]
        for node in section.body:
            flat.changed(node)
    shake(flat, settings)
    pass_by_position(flat)
    tree = ast.fix_missing_locations(ast.Module([*flat.imports.values(), *flat.statements()], []))
    # Short names for builtins and constants save characters, but nothing once it is all compressed.
    kept = dir(builtins)
    return python_minifier.minify(ast.unparse(tree), rename_globals=True, preserve_globals=kept, hoist_literals=False)


class _Stripper(ast.NodeTransformer):
    """Removes docstrings and annotations. Dataclasses keep fields, whose types nobody asks for any more."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        for arg in ast.walk(node.args):
            if isinstance(arg, ast.arg):
                arg.annotation = None
        self.generic_visit(node)
        node.body = _without_docstring(node.body)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        fields = [self._field(n) if isinstance(n, ast.AnnAssign) else self.visit(n) for n in node.body]
        node.body = _without_docstring([n for n in fields if n is not None])
        return node

    def _field(self, node: ast.AnnAssign) -> ast.stmt | None:
        if "ClassVar" in ast.unparse(node.annotation):
            return ast.Assign([node.target], node.value, lineno=0) if node.value else None
        node.annotation = ast.Name("int", ast.Load())
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        return ast.Assign([node.target], self.visit(node.value), lineno=0) if node.value else None


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    kept = [n for n in body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
    return kept or [ast.Pass()]


def wrapped(program: str) -> str:
    """`program` as a script that unpacks and runs it. Of what Python brings along, bz2 packs short names best."""
    data = base64.b85encode(bz2.compress(program.encode())).decode()
    return f"import bz2,base64;exec(bz2.decompress(base64.b85decode('{data}')))\n"


def unwrapped(script: str) -> str | None:
    """The program inside a script that `wrapped` made; None for any other text."""
    if not (match := PACKED.search(script)):
        return None
    try:
        return bz2.decompress(base64.b85decode(match[1])).decode()
    except (ValueError, OSError):
        return None
