"""A script without what only chooses kernels and compilers: the same computation in other calls.

FlashAttention and compressors count as installed where a script tries to import them, as on the machines of the
challenge; what a script does without FlashAttention is the same attention. Other kernels that a script can do without
count as not installed. PyTorch is new enough for what is asked of it. Key heads that are repeated by hand are those
that `enable_gqa` repeats.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from typing import Any

from golf.field.script_reads import variable_of

PACKAGES, ATTENTION = ("flash_attn", "zstandard", "brotli"), "scaled_dot_product_attention"
OPTIONAL = re.compile(r"fused|kernel|triton|cutlass")  # in the name of a module of which a script has the like itself
IS_GROUPED = {
    "self.num_kv_heads != self.num_heads",
    "self.num_heads != self.num_kv_heads",
    "self.num_kv_heads < self.num_heads",
    "self.num_heads > self.num_kv_heads",
}
VERSION = "torch.__version__"
PROCESSES = "init_process_group"
ABOUT_PROCESSES = {"device_id", "timeout"}  # keywords without an effect on what is sent
ABOUT_MACHINE = re.compile(r"TORCHINDUCTOR_|TORCH_|PYTORCH_|TRITON_|CUDA_|NCCL_|OMP_|TOKENIZERS_")  # in the environment
CACHED = re.compile(r"_cached$")  # attributes that are made again when they are not there
RATIO = "self.num_heads // self.num_kv_heads"
COMPILE = "torch.compile"
OPTIMIZERS = "torch.optim."
HOW = {"fused", "foreach", "capturable", "non_blocking", "pin_memory"}  # keywords about speed alone
HOWEVER = {"to", "cuda", "copy_", "empty", "zeros", "tensor"}  # methods and functions that take some of them
COMPILER = ("torch._dynamo.config.", "torch._inductor.config.")


def without_kernels(tree: ast.Module, values: Mapping[str, Any]) -> ast.Module:
    """Return a script without choices of kernels. Reads of variables that `values` lack are their computed defaults."""
    tries = {id(node): of for node in tree.body if isinstance(node, ast.Try) and (of := _flags(node)) is not None}
    bound = _bound(tree, tries)
    return ast.Module([_plain(node, bound, values) for node in _kept(tree.body, []) if id(node) not in tries], [])


def _flags(node: ast.Try) -> dict[str, Any] | None:
    """Return the names that a `try` around an import of kernels binds, an import as an Ellipsis; None for others."""
    imports = [part for part in node.body if isinstance(part, ast.Import | ast.ImportFrom)]
    names = [getattr(part, "module", None) or part.names[0].name for part in imports]
    rest = [part for part in node.body if part not in imports and "sys.path" not in ast.unparse(part)]
    if not names or node.orelse or node.finalbody:
        return None
    if all(name.startswith(PACKAGES) for name in names):
        found = {alias.asname or alias.name: ... for part in imports for alias in part.names}
        return found | own if (own := _constants(rest)) is not None else None
    without = [handler.body for handler in node.handlers]
    is_optional = all(OPTIONAL.search(name) for name in names) and len(without) == 1
    return _constants([part for part in without[0] if not isinstance(part, ast.Pass)]) if is_optional else None


def _constants(body: list[ast.stmt]) -> dict[str, Any] | None:
    """Return the constants that statements assign to names, None if they do anything else."""
    found = dict[str, Any]()
    for part in body:
        if not (isinstance(part, ast.Assign) and isinstance(part.value, ast.Constant)):
            return None
        found |= {ast.unparse(target): part.value.value for target in part.targets}
    return found


def _bound(tree: ast.Module, tries: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    """Return the values of names that `tries` bind and nothing else does; `VERSION` is what holds PyTorch's."""
    bound = {name: value for flags in tries.values() for name, value in flags.items()}
    versions = [node for node in tree.body if isinstance(node, ast.Assign) and VERSION in ast.unparse(node.value)]
    bound |= {ast.unparse(node.targets[0]): VERSION for node in versions}
    inside = {id(inner) for node in tree.body if id(node) in tries for inner in ast.walk(node)}
    inside |= {id(node.targets[0]) for node in versions}
    for inner in ast.walk(tree) if bound else ():
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
    if isinstance(node, ast.Name) and bound.get(node.id, ...) not in (..., VERSION) and isinstance(node.ctx, ast.Load):
        return ast.Constant(bound[node.id])
    if isinstance(node, ast.Compare) and bound.get(getattr(node.left, "id", "")) == VERSION:
        return ast.Constant(True) if isinstance(node.ops[0], ast.Gt | ast.GtE) and len(node.ops) == 1 else node
    is_found = isinstance(node, ast.Compare) and bound.get(getattr(node.left, "id", "")) is ...
    if is_found and isinstance(node.ops[0], ast.Is | ast.IsNot) and ast.unparse(node.comparators[0]) == "None":
        return ast.Constant(isinstance(node.ops[0], ast.IsNot))
    if isinstance(node, ast.IfExp) and ast.dump(node.body) == ast.dump(node.orelse):
        return node.body
    if not isinstance(node, ast.Call):
        return node
    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if called == ATTENTION:
        return ast.Call(node.func, node.args, [k for k in node.keywords if not _groups(k)])
    if called == PROCESSES:
        return ast.Call(node.func, node.args, [k for k in node.keywords if k.arg not in ABOUT_PROCESSES])
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


def _groups(keyword: ast.keyword) -> bool:
    """Tell whether a keyword only lets queries share heads of keys, which PyTorch refuses where they need not."""
    value = keyword.value
    if isinstance(value, ast.IfExp) and isinstance(value.orelse, ast.Dict) and not value.orelse.keys:
        value = value.body
    keys = value.keys if keyword.arg is None and isinstance(value, ast.Dict) else []
    return "enable_gqa" in (keyword.arg, *(getattr(key, "value", None) for key in keys if len(keys) == 1))


def _attention(function: ast.FunctionDef) -> list[ast.Call]:
    """Return the calls of PyTorch's attention in a function."""
    return [n for n in ast.walk(function) if isinstance(n, ast.Call) and getattr(n.func, "attr", "") == ATTENTION]


def _kept(body: list[Any], calls: list[ast.Call]) -> list[Any]:
    """Return statements without settings of the compiler, and without heads that are repeated for `calls` alone."""
    kept = [node for node in body if not (_is_machine(node) or (isinstance(node, ast.Assign) and _is_choice(node)))]
    if len(calls) != 1 or any(not isinstance(argument, ast.Name) for argument in calls[0].args[1:3]):
        return kept
    heads = {argument.id for argument in calls[0].args[1:3] if isinstance(argument, ast.Name)}
    inside = {id(inner) for inner in ast.walk(calls[0])}
    for place, node in enumerate(kept):
        # Where all heads are alike, each is repeated once.
        is_asked = isinstance(node, ast.If) and not node.orelse and ast.unparse(node.test) in IS_GROUPED
        for count in (1,) if is_asked else (2, 3):
            nodes = node.body if is_asked else kept[place : place + count]
            if _repeats(nodes, heads) and _loads(kept[place + count :], heads) <= inside:
                return [*kept[:place], *kept[place + count :]]
    return kept


def _is_choice(node: ast.Assign) -> bool:
    return _only_compiles(node) or _is_reset(node)


def _is_machine(node: Any) -> bool:
    """Tell whether a statement sets a variable of the environment that compilers and drivers read."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and node.value.args:
        is_set, key = ast.unparse(node.value.func) == "os.environ.setdefault", node.value.args[0]
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        is_set, key = ast.unparse(node.targets[0].value) == "os.environ", node.targets[0].slice
    else:
        return False
    return is_set and isinstance(key, ast.Constant) and bool(ABOUT_MACHINE.match(str(key.value)))


def _is_reset(node: ast.Assign) -> bool:
    """Tell whether an assignment only forgets what another object keeps, as turned heads' angles."""
    target = node.targets[0]
    is_other = isinstance(target, ast.Attribute) and ast.unparse(target.value) != "self"
    return is_other and bool(CACHED.search(target.attr)) and getattr(node.value, "value", 1) in (None, 0)  # type: ignore[attr-defined]


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


def _repeats(nodes: list[ast.stmt], heads: set[str]) -> bool:
    """Tell whether statements repeat the heads of both `heads`, and do nothing else."""
    ratios, done = {RATIO}, set[str]()
    for part in nodes:
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
