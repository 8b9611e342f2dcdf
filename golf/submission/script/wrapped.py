"""A bundle as the script whose bytes count: minified, compressed, self-extracting."""

from __future__ import annotations

import ast
import base64
import builtins
import bz2

import python_minifier

from golf.submission.script.flat import Flat

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


def wrapped(program: str, packing: str) -> bytes:
    """Return `program` as a script that unpacks and runs it, its bytes as `rules.script_packing` says."""
    # bz2 packs minified code best among the compressors in Python's library.
    data = bz2.compress(program.encode())
    if packing == "base85":
        # It has no quote and no backslash, so the text needs no escapes; it is denser than base 64.
        return b"import bz2,base64;exec(bz2.decompress(base64.b85decode('" + base64.b85encode(data) + b"')))\n"
    # In Latin-1 every byte is a character. Python reads no zero byte, and a carriage return as a line feed.
    escaped = data
    for byte, escape in ((b"\\", b"\\\\"), (b"\0", b"\\x00"), (b"\r", b"\\r"), (b"'", b"\\'")):
        escaped = escaped.replace(byte, escape)
    return b"#coding:latin1\nimport bz2;exec(bz2.decompress('''" + escaped + b"'''.encode('latin1')))\n"
