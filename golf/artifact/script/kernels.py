"""Modules in Triton in a bundle: as text, because Triton reads its functions' source, which no other code needs."""

from __future__ import annotations

import ast

from golf.artifact.script.flat import Flat
from golf.artifact.script.modules import source_of
from golf.artifact.script.syntax import is_docstring, walk

FOLDER = "golf.training.model.kernels"
TEXTS, IMPORTER = "KERNEL_TEXTS", "kernel_module"  # names in its `modules.py`


def put_kernels(flat: Flat) -> None:
    """Fill the dict of texts in `flat` with the modules in Triton that its code imports, in place."""
    calls = [n for node in flat.statements() for n in walk(node) if isinstance(n, ast.Call)]
    names = {ast.literal_eval(n.args[0]) for n in calls if isinstance(n.func, ast.Name) and n.func.id == IMPORTER}
    for node in flat.statements():
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == TEXTS:
            texts = {name: text_of(name) for name in sorted(names)}
            node.value = ast.parse(repr(texts), mode="eval").body
            flat.changed(node)


def text_of(name: str) -> str:
    """Return the source of a module in Triton without docstrings and comments. Its annotations have to stay."""
    tree = ast.parse(source_of(f"{FOLDER}.{name}").read_text())
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            body[:] = [part for part in body if not is_docstring(part)] or [ast.Pass()]
    return ast.unparse(tree) + "\n"
