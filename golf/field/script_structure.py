"""Parts that a public script always has, without a variable to switch them, read from the names in its text.

A mark is a name that such a part goes by in the public scripts; the marks stand in script_structure.yaml.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from typing import Any

from golf.field.script_code import dead_code
from golf.field.script_parts import loads_average, other_data, unknown_coefficients, unknown_parts, unknown_quantizer
from golf.field.translation import Structure
from golf.tables import table_of

BLEND = re.compile(r"\(1(?:\.0)? - (\w+)\) \* \w+ \+ \1 \* \w+")  # of the scripts' SmearGate
MARKS: list[dict[str, Any]] = table_of(__file__)["marks"]


def script_structure(tree: ast.Module, declared: Mapping[str, str | None]) -> Structure:
    """Return what a script always has, as far as the marks tell; `declared` are its variables with their defaults."""
    dead = dead_code(tree, declared)
    names, structure, parts = _names(tree, dead), Structure(), set[str]()
    for mark in MARKS:
        is_switched = any(switch in declared for switch in mark.get("switch", ()))
        if mark["part"] in parts or mark["name"] not in names or is_switched:
            continue
        parts.add(mark["part"])
        structure.variables |= mark.get("variables", {})
        overrides = mark.get("overrides", [])
        structure.overrides += [o for o in overrides if not o.startswith("tech.")]
        structure.settings += [o for o in overrides if o.startswith("tech.")]
        structure.missing += mark.get("missing", [])
    structure.missing += unknown_parts(tree, dead) + ([] if "quant" in parts else unknown_quantizer(tree))
    structure.missing += [] if "polar" in parts else unknown_coefficients(tree, dead)
    structure.missing += other_data(declared)
    structure.loads_swa = loads_average(tree, dead)
    if {"DocumentPackingLoader", "ShuffledSequenceLoader"} <= names:
        structure.overrides.append("quant.calibration.text=windows")
    if decay := _muon_decay(tree, declared):
        structure.variables["MUON_WD"] = decay
    _add_smear(tree, declared, structure)
    if "orthogonal_" in names:
        structure.techniques.append("ortho_init")
        plain = ["proj_init=zero", "embed_proj_gain=one"]
        settings = ["proj_init=ortho_depth_scaled"] if _scales_by_depth(tree) else plain
        structure.settings += [f"tech.ortho_init.{setting}" for setting in settings]
    structure.settings.append(f"tech.partial_rope.reference_len={_reference_len(tree)}")
    return structure


def _add_smear(tree: ast.Module, declared: Collection[str], structure: Structure) -> None:
    """Add the gate over all channels of the scripts of March, some of which have no switch for it."""
    calls = any(isinstance(node, ast.Call) and getattr(node.func, "id", "") == "SmearGate" for node in ast.walk(tree))
    is_switched = any("SMEAR" in name for name in declared)
    kinds = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == "SmearGate"]
    # Others keep the token whole, or gate by some channels.
    if calls and kinds and BLEND.search(ast.unparse(kinds[0])):
        structure.techniques += [] if is_switched else ["smear"]
        structure.settings.append("tech.smear.form=blend")
    elif calls and not is_switched:
        structure.missing.append("SmearGate, which has another formula than those known here")


def _names(tree: ast.Module, dead: set[ast.AST]) -> set[str]:
    """Return the names of everything that the script defines, loads or passes, but for the nodes `dead`."""
    live = [node for node in ast.walk(tree) if node not in dead]
    values = [getattr(node, key, None) for node in live for key in ("name", "id", "attr", "arg")]
    return {value for value in values if isinstance(value, str)}


def _muon_decay(tree: ast.Module, declared: Collection[str]) -> str:
    """Return the weight decay that the script gives to Muon as a number; empty if it has a variable or none."""
    if any(name.endswith(("MUON_WD", "WEIGHT_DECAY")) for name in declared):
        return ""
    calls = (n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "").endswith("Muon"))
    values = [k.value for call in calls for k in call.keywords if k.arg == "weight_decay"]
    return next((str(v.value) for v in values if isinstance(v, ast.Constant) and v.value), "")


def _scales_by_depth(tree: ast.Module) -> bool:
    """Tell whether initial projections are divided by the root of twice the layers, as in scripts of March."""
    calls = (ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any("sqrt(2 * " in call and "layers" in call for call in calls)


def _reference_len(tree: ast.Module) -> str:
    """Return the length that rotary embeddings are scaled from: a number, or null if it is the training length."""
    arguments: dict[str | None, ast.expr] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Rotary":
            # Later calls with rope_dims replace the modules of earlier ones.
            arguments |= {k.arg: k.value for k in node.keywords if k.arg in ("train_seq_len", "rope_dims")}
    value = arguments.get("train_seq_len")
    return str(value.value) if isinstance(value, ast.Constant) else "null" if value is not None else "1024"
