"""A bundle as the script whose bytes count: minified, compressed, self-extracting."""

from __future__ import annotations

import ast
import base64
import builtins
import bz2

import python_minifier

from golf.artifact.script.flat import Flat

# Python makes one node of each of these kinds and uses it in every tree.
SHARED = ast.expr_context | ast.boolop | ast.operator | ast.unaryop | ast.cmpop


def minified(flat: Flat) -> str:
    """Return the program of `flat` without what only readers need: docstrings, comments, types, long names."""
    tree = ast.fix_missing_locations(ast.Module([*flat.imports.values(), *flat.statements()], []))
    # Fields of dataclasses keep their types, which this keeps from being evaluated before they are defined.
    source = f"from __future__ import annotations\n{ast.unparse(tree)}"
    # Short names for builtins and constants save characters, but nothing once it is all compressed.
    short = python_minifier.minify(
        source,
        rename_globals=True,
        preserve_globals=dir(builtins),
        hoist_literals=False,
        remove_literal_statements=True,
    )
    # The minifier leaves its whole tree on these nodes. With it, every later copy of a node would copy that tree.
    for node in ast.walk(tree):
        if isinstance(node, SHARED):
            vars(node).clear()
    return short


def wrapped(program: str) -> str:
    """Return `program` as a script that unpacks and runs it."""
    # bz2 packs minified code best among the compressors in Python's library. Base 85 has no quote and no backslash, so
    # the text needs no escapes; it is denser than base 64.
    data = base64.b85encode(bz2.compress(program.encode())).decode()
    return f"import bz2,base64;exec(bz2.decompress(base64.b85decode('{data}')))\n"
