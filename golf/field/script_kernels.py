"""A script without what only chooses kernels and compilers: the same computation in other calls.

FlashAttention counts as installed where a script tries to import it, as on the machines of the challenge; what a script
does without it is the same attention. Key heads that are repeated by hand are those that `enable_gqa` repeats.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any

from golf.field.script_reads import variable_of

PACKAGE, ATTENTION = "flash_attn", "scaled_dot_product_attention"
IS_GROUPED = {
    "self.num_kv_heads != self.num_heads",
    "self.num_heads != self.num_kv_heads",
    "self.num_kv_heads < self.num_heads",
    "self.num_heads > self.num_kv_heads",
}
RATIO = "self.num_heads // self.num_kv_heads"
COMPILE = "torch.compile"
OPTIMIZERS = "torch.optim."
HOW = {"fused", "foreach", "capturable", "non_blocking", "pin_memory"}  # keywords about speed alone
HOWEVER = {"to", "cuda", "copy_", "empty", "zeros", "tensor"}  # methods and functions that take some of them
COMPILER = ("torch._dynamo.config.", "torch._inductor.config.")


def without_kernels(tree: ast.Module, values: Mapping[str, Any]) -> ast.Module:
    """Return a script without choices of kernels. Reads of variables that `values` lack are their computed defaults."""
    tries = [node for node in tree.body if isinstance(node, ast.Try) and _tries_kernels(node)]
    bound = _bound(tree, tries) if tries else {}
    return ast.Module([_plain(node, bound, values) for node in _kept(tree.body, []) if node not in tries], [])


def _tries_kernels(node: ast.Try) -> bool:
    """Tell whether a statement imports FlashAttention, sets flags that say so, and does without it otherwise."""
    imports = [part for part in node.body if isinstance(part, ast.Import | ast.ImportFrom)]
    names = [getattr(part, "module", None) or part.names[0].name for part in imports]
    flags = [part for part in node.body if part not in imports]
    is_plain = all(isinstance(flag, ast.Assign) and isinstance(flag.value, ast.Constant) for flag in flags)
    return bool(names) and all(name.startswith(PACKAGE) for name in names) and is_plain and not node.orelse


def _bound(tree: ast.Module, tries: list[ast.Try]) -> dict[str, Any]:
    """Return the values of names that `tries` bind and nothing else does; what they import is an Ellipsis."""
    bound = dict[str, Any]()
    for part in (part for node in tries for part in node.body):
        if isinstance(part, ast.Assign):
            value = part.value.value if isinstance(part.value, ast.Constant) else None
            bound |= {ast.unparse(target): value for target in part.targets}
        elif isinstance(part, ast.ImportFrom | ast.Import):
            bound |= {alias.asname or alias.name: ... for alias in part.names}
    inside = {id(inner) for node in tries for inner in ast.walk(node)}
    for inner in ast.walk(tree):
        is_load = isinstance(getattr(inner, "ctx", None), ast.Load)
        name = getattr(inner, "asname", None) or getattr(inner, "id", getattr(inner, "arg", getattr(inner, "name", "")))
        if not (is_load or isinstance(inner, ast.keyword) or id(inner) in inside):
            bound.pop(name or "", None)
    return bound


def _plain(node: Any, bound: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    """Return a node without choices of kernels, the same one where it has none."""
    changed = dict[str, Any]()
    for key, value in ast.iter_fields(node):
        if isinstance(value, list):
            calls = _attention(node) if isinstance(node, ast.FunctionDef) and key == "body" else []
            plain = [_plain(i, bound, values) if isinstance(i, ast.AST) else i for i in _kept(value, calls)]
            new: Any = [part for item in plain for part in _without_choice(item)]
            if len(new) != len(value) or any(a is not b for a, b in zip(new, value, strict=True)):
                changed[key] = new
        elif isinstance(value, ast.AST) and (part := _plain(value, bound, values)) is not value:
            changed[key] = part
    if isinstance(node, ast.FunctionDef) and any(map(_is_compiler, node.decorator_list)):
        changed["decorator_list"] = [of for of in node.decorator_list if not _is_compiler(of)]
    if changed:
        node = type(node)(**{**dict(ast.iter_fields(node)), **changed})
    return _expression(node, bound, values)


def _without_choice(node: Any) -> list[Any]:
    """Return a statement as a list of one, or what both branches of it do where they do the same."""
    return node.body if isinstance(node, ast.If) and _is_alike(node.body, node.orelse) else [node]


def _is_alike(a: list[ast.stmt], b: list[ast.stmt]) -> bool:
    return len(a) == len(b) and all(ast.dump(one) == ast.dump(other) for one, other in zip(a, b, strict=True))


def _expression(node: Any, bound: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name) and bound.get(node.id, ...) is not ... and isinstance(node.ctx, ast.Load):
        return ast.Constant(bound[node.id])
    is_found = isinstance(node, ast.Compare) and bound.get(getattr(node.left, "id", "")) is ...
    if is_found and isinstance(node.ops[0], ast.Is | ast.IsNot) and ast.unparse(node.comparators[0]) == "None":
        return ast.Constant(isinstance(node.ops[0], ast.IsNot))
    if isinstance(node, ast.IfExp) and ast.dump(node.body) == ast.dump(node.orelse):
        return node.body
    if not isinstance(node, ast.Call):
        return node
    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if called == ATTENTION:
        kept = [k for k in node.keywords if k.arg != "enable_gqa" or ast.unparse(k.value) not in {*IS_GROUPED, "True"}]
        return ast.Call(node.func, node.args, kept)
    if called == "compile" and ast.unparse(node.func) == COMPILE and len(node.args) == 1:
        return node.args[0]
    if ast.unparse(node.func) == "torch.inference_mode" and isinstance(node.func, ast.Attribute):
        return ast.Call(ast.Attribute(node.func.value, "no_grad", node.func.ctx), node.args, node.keywords)
    is_library = called in HOWEVER or ast.unparse(node.func).startswith(OPTIMIZERS)
    if is_library and any(k.arg in HOW for k in node.keywords):
        return ast.Call(node.func, node.args, [k for k in node.keywords if k.arg not in HOW])
    if called == "int" and len(node.args) == 1 and (variable := variable_of(node.args[0])) is not None:
        default = node.args[0].args[1] if isinstance(node.args[0], ast.Call) and len(node.args[0].args) > 1 else None
        # A quotient of whole numbers, whose conversion changes nothing.
        is_whole = isinstance(default, ast.BinOp) and isinstance(default.op, ast.FloorDiv)
        return default if is_whole and values.get(variable[0]) is None else node
    return node


def _attention(function: ast.FunctionDef) -> list[ast.Call]:
    """Return the calls of PyTorch's attention in a function."""
    return [n for n in ast.walk(function) if isinstance(n, ast.Call) and getattr(n.func, "attr", "") == ATTENTION]


def _kept(body: list[Any], calls: list[ast.Call]) -> list[Any]:
    """Return statements without settings of the compiler, and without heads that are repeated for `calls` alone."""
    kept = [node for node in body if not (isinstance(node, ast.Assign) and _only_compiles(node))]
    if len(calls) != 1 or any(not isinstance(argument, ast.Name) for argument in calls[0].args[1:3]):
        return kept
    heads = {argument.id for argument in calls[0].args[1:3] if isinstance(argument, ast.Name)}
    inside = {id(inner) for inner in ast.walk(calls[0])}
    return [
        node
        for place, node in enumerate(kept)
        if not (_repeats(node, heads) and _loads(kept[place + 1 :], heads) <= inside)
    ]


def _is_compiler(decorator: ast.expr) -> bool:
    """Tell whether a decorator compiles its function, or keeps the compiler from it."""
    return ast.unparse(decorator).startswith((COMPILE, "torch.compiler.", "torch._dynamo."))


def _only_compiles(node: ast.Assign) -> bool:
    """Tell whether an assignment sets the compiler, or something to what is compiled of it."""
    target, value = ast.unparse(node.targets[0]), node.value
    if isinstance(value, ast.Call) and ast.unparse(value.func) == COMPILE and len(value.args) == 1:
        return ast.unparse(value.args[0]) == target
    return target.startswith(COMPILER)


def _loads(body: Iterable[ast.stmt], names: set[str]) -> set[int]:
    """Return the loads of some names in statements, by the ids of their nodes."""
    nodes = (inner for node in body for inner in ast.walk(node))
    return {id(n) for n in nodes if isinstance(n, ast.Name) and n.id in names and isinstance(n.ctx, ast.Load)}


def _repeats(node: ast.stmt, heads: set[str]) -> bool:
    """Tell whether a statement repeats the heads of both `heads` where queries have more, and does nothing else."""
    if not isinstance(node, ast.If) or node.orelse or ast.unparse(node.test) not in IS_GROUPED:
        return False
    ratios, done = {RATIO}, set[str]()
    for part in node.body:
        if not isinstance(part, ast.Assign) or not isinstance(part.targets[0], ast.Name) or len(part.targets) != 1:
            return False
        name, value = part.targets[0].id, ast.unparse(part.value)
        if name in heads and value in {f"{name}.repeat_interleave({ratio}, dim=1)" for ratio in ratios}:
            done.add(name)
        elif name not in heads and value == RATIO:
            ratios.add(name)
        else:
            return False
    return done == heads and len(heads) == 2
