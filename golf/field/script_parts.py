"""Modules, parameters, operations and quantizers of a script that no known script has, so that no translation fits.

A translation knows switches and marks. A part without either would be left out without a word, so everything that the
model and the optimizers of a script are made of has to have a known name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from golf.field.script_code import built_classes
from golf.tables import table_of

ORTHOGONALIZES = re.compile("zeropower|newton_?schulz|polar|orthogonalize|muon_ortho", re.IGNORECASE)
OF_KNOWN_SCRIPTS = re.compile("zeropower_via_newtonschulz5|newton_schulz5?|_?zeropower\\w*")
NEWTON_SCHULZ = {3.4445, 4.775, 2.0315}  # its coefficients, without signs
COEFFICIENTS = re.compile("polar|coeff", re.IGNORECASE)  # names of tables of coefficients
OF_TENSORS = re.compile("tok_emb|lm_head|embed|blocks|attn|mlp|bigram|\\.weight")  # in names of tensors
FINEWEB = re.compile(r"^fineweb\w*_(?:sp(?:1024|4096|8192)|byte260)(?:_lossless_caps_caseops\w*)?$|[{$]")

KNOWN: dict[str, Any] = table_of(__file__)


def unknown_parts(tree: ast.Module, dead: set[ast.AST] | None = None) -> list[str]:
    """Return what the model and the optimizers of a script have that no known script has, with its line.

    Nothing counts that does not run: the nodes `dead`, and other classes that nobody builds.
    """
    dead = dead or set()
    built, parts = built_classes(tree, dead), []
    for made in ast.walk(tree):
        if isinstance(made, ast.ClassDef) and _holds_numbers(made):
            if made.name not in KNOWN["classes"]:
                parts += [f"class {made.name} (line {made.lineno})"] if made.name in built else []
            else:
                parts += [f"{made.name}: {part}" for part in dict.fromkeys(_inside(made, dead))]
    return parts


def unknown_coefficients(tree: ast.Module, dead: set[ast.AST]) -> list[str]:
    """Return the sign that a script orthogonalizes otherwise than by the iteration of the first baseline."""
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node not in dead and ORTHOGONALIZES.search(node.name)
    ]
    numbers = {abs(n.value) for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, float)}
    if functions and not numbers >= NEWTON_SCHULZ:
        return [f"orthogonalization by other coefficients ({functions[0].name}, line {functions[0].lineno})"]
    others = [f for f in functions if not OF_KNOWN_SCRIPTS.fullmatch(f.name)]
    tables = [n for n in tree.body if isinstance(n, ast.Assign) and COEFFICIENTS.search(ast.unparse(n.targets[0]))]
    return [
        f"orthogonalization in another form ({ast.unparse(n.targets[0])}, line {n.lineno})" for n in tables[:1]
    ] or [f"orthogonalization in another form ({f.name}, line {f.lineno})" for f in others[:1]]


def loads_average(tree: ast.Module, dead: set[ast.AST]) -> bool:
    """Tell whether a script goes through the entries of an average by SWA, and so uses it."""
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == "items"
        and node not in dead
        and isinstance(node.value, ast.Name)
        and "swa" in node.value.id
        for node in ast.walk(tree)
    )


def other_data(declared: Mapping[str, str | None]) -> list[str]:
    """Return the sign that a script trains on text or with a vocabulary that no data set here has."""
    path = declared.get("DATA_PATH") or ""
    folder = path.rstrip("/").rpartition("/")[2]
    vocabulary = declared.get("VOCAB_SIZE") or ""
    if vocabulary and vocabulary not in KNOWN["vocabularies"]:
        return [f"a data set with a vocabulary of {vocabulary}: none here has it"]
    return [f"the data set {folder}, which is none of those here"] if folder and not FINEWEB.search(folder) else []


def unknown_quantizer(tree: ast.Module) -> list[str]:
    """Return the sign that a script without a known quantizer does not store int8 codes under zlib."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and "quant" in node.name and "dequant" not in node.name:
            numbers = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
            if named := _exceptions(node):
                return [f"an exception by name in the quantization: {named[0]} ({node.name}, line {node.lineno})"]
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


def _exceptions(function: ast.FunctionDef) -> list[str]:
    """Return the texts that a function compares names of tensors with."""
    return [
        side.value
        for node in ast.walk(function)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn)
        for side in (node.left, *node.comparators)
        if isinstance(side, ast.Constant) and isinstance(side.value, str) and OF_TENSORS.search(side.value)
    ]


def _holds_numbers(made: ast.ClassDef) -> bool:
    """Tell whether a class is a module or an optimizer."""
    bases = [ast.unparse(base) for base in made.bases]
    return any(base.startswith(("nn.", "torch.nn.", "torch.optim.")) or base.endswith("Module") for base in bases)


def _inside(made: ast.ClassDef, dead: set[ast.AST]) -> Iterator[str]:
    """Yield the parts and operations in a known class that are not known, and attention that sees later tokens."""
    for node in ast.walk(made):
        if node in dead:
            continue
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            for target in node.targets:
                if (
                    isinstance(target, ast.Attribute)
                    and _makes_part(node.value, dead)
                    and target.attr not in KNOWN["parts"]
                ):
                    yield f"{target.attr} (line {node.lineno})"
        if isinstance(node, ast.Call):
            owner, _, name = ast.unparse(node.func).rpartition(".")
            if owner in KNOWN["torch"] and name not in (*KNOWN["operations"], *KNOWN["harmless"]):
                yield f"{name} (line {node.lineno})"
            if any(k.arg == "is_causal" and ast.unparse(k.value) == "False" for k in node.keywords):
                yield f"attention to later tokens (line {node.lineno})"


def _makes_part(call: ast.Call, dead: set[ast.AST]) -> bool:
    """Tell whether a call makes a module or a parameter: its name is in nn, or begins with a capital letter.

    A list of modules out of a loop of no pass is none.
    """
    name = ast.unparse(call.func)
    if any(argument in dead for argument in call.args):
        return False
    return name.startswith(("nn.", "torch.nn.")) or name[:1].isupper()
