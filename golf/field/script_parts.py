"""Modules, parameters, operations and quantizers of a script that no known script has, so that no translation fits.

A translation knows switches and marks. A part without either would be left out without a word, so everything that the
model and the optimizers of a script are made of has to have a known name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from golf.tables import table_of

KNOWN: dict[str, Any] = table_of(__file__)


def unknown_parts(tree: ast.Module) -> list[str]:
    """Return what the model and the optimizers of a script have that no known script has, with its line."""
    parts = []
    for made in ast.walk(tree):
        if isinstance(made, ast.ClassDef) and _holds_numbers(made):
            if made.name not in KNOWN["classes"]:
                parts.append(f"class {made.name} (line {made.lineno})")
            else:
                parts += [f"{made.name}: {part}" for part in dict.fromkeys(_inside(made))]
    return parts


def unknown_quantizer(tree: ast.Module) -> list[str]:
    """Return the sign that a script without a known quantizer does not store int8 codes under zlib."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and "quant" in node.name:
            numbers = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
            if levels := [level for level in KNOWN["levels"] if level in numbers]:
                return [f"quantization with codes up to {levels[0]} ({node.name}, line {node.lineno})"]
            widths = [bits for bits in re.findall(r"bits(?:: int)? ?= ?(\d+)", ast.unparse(node)) if bits != "8"]
            if widths:
                return [f"quantization to {widths[0]} bits ({node.name}, line {node.lineno})"]
    for call in ast.walk(tree):
        called = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
        if called.partition(".")[0] in KNOWN["codecs"] and called.endswith(("compress", "Compressor")):
            return [f"codec {called.partition('.')[0]} (line {call.lineno})"]  # type: ignore[attr-defined]
    return []


def _holds_numbers(made: ast.ClassDef) -> bool:
    """Tell whether a class is a module or an optimizer."""
    bases = [ast.unparse(base) for base in made.bases]
    return any(base.startswith(("nn.", "torch.nn.", "torch.optim.")) or base.endswith("Module") for base in bases)


def _inside(made: ast.ClassDef) -> Iterator[str]:
    """Yield the parts and operations in a known class that are not known, and attention that sees later tokens."""
    for node in ast.walk(made):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and _makes_part(node.value) and target.attr not in KNOWN["parts"]:
                    yield f"{target.attr} (line {node.lineno})"
        if isinstance(node, ast.Call):
            owner, _, name = ast.unparse(node.func).rpartition(".")
            if owner in KNOWN["torch"] and name not in (*KNOWN["operations"], *KNOWN["harmless"]):
                yield f"{name} (line {node.lineno})"
            if any(k.arg == "is_causal" and ast.unparse(k.value) == "False" for k in node.keywords):
                yield f"attention to later tokens (line {node.lineno})"


def _makes_part(call: ast.Call) -> bool:
    """Tell whether a call makes a module or a parameter: its name is in nn, or begins with a capital letter."""
    name = ast.unparse(call.func)
    return name.startswith(("nn.", "torch.nn.")) or name[:1].isupper()
