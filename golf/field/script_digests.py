"""Digests of a script's functions, which are equal where the functions do the same with other words.

Texts that a function prints, annotations, documentation, names of its own variables, checks that stop a run, times that
only a log has, and the choice of an attention kernel count for nothing. So do defaults of variables: they are values.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from golf.field.script_constants import with_constants
from golf.field.script_copies import filled, unread_containers, without_copies
from golf.field.script_inlining import inlined, own_variables
from golf.field.script_pruning import pruned
from golf.field.script_reads import reads_environment, variable_of
from golf.field.script_reduction import is_same, reduced
from golf.field.script_switches import Switches, switches, without_rivals

PRINTS = ("print", "log", "log0", "log_fn", "logprint", "log_print", "synchronize")
KERNELS = ("enable_cudnn_sdp", "enable_flash_sdp", "enable_mem_efficient_sdp", "enable_math_sdp")
# Calls without any effect but their value, in which only a log is interested.
_LOOKS = {
    *("perf_counter", "time", "sum", "len", "int", "float", "str", "round", "min", "max", "sorted", "list", "numel"),
    *("parameters", "named_parameters", "items", "values", "keys", "glob", "resolve", "Path", "enumerate", "zip"),
    *("range", "isinstance", "hasattr", "bool", "max_memory_allocated", "max_memory_reserved", "join", "exists"),
    *("get", "getenv", "is_available", "vocab_size", "device_count", "stat", "getsize", "modules", "item", "tolist"),
    *("sqrt", "log", "log2", "exp", "abs"),
    *("set", "tuple", "frozenset", "dict", "any", "all", "split", "encode", "startswith", "endswith", "lower", "strip"),
}
# Calls that only free or count memory.
FREES = {"gc.collect", "torch.cuda.empty_cache", "torch.cuda.reset_peak_memory_stats", "sys.stdout.flush"}
CALLED = {  # methods that PyTorch or Python calls
    *("forward", "backward", "setup_context", "step", "zero_grad", "reset_parameters", "extra_repr", "run", "train"),
    *("eval", "state_dict", "load_state_dict", "_load_from_state_dict", "_save_to_state_dict", "_apply"),
}
VALIDATES = ("should_validate",)  # what says when a run validates, which trains nothing
_NOTHING = (ast.Pass, ast.Import, ast.ImportFrom)
MOST_PASSES = 4  # over a script, each of which takes away what the one before decided
DIGITS = 6  # hexadecimal, of a digest
_SKIPPED = {"ctx", "type_comment", "kind", "annotation", "returns", "type_params", "simple"}
_ERROR = re.compile(r"\w+Error|Exception|SystemExit")


def digests(tree: ast.Module) -> dict[str, str]:
    """Return the digest of every function, method and constant of a script by its name."""
    return {name: _digest(parts) for name, parts in _parts(tree).items()}


def live_digests(tree: ast.Module, values: Mapping[str, str | None], of_whole: Mapping[str, str]) -> dict[str, str]:
    """Return the digests of what runs under the texts `values` of the variables, without branches that are off.

    `of_whole` are the `digests` of the script, which functions without such branches keep.
    """
    whole, parts = _parts(tree), _live_parts(tree, switches(tree, without_rivals(tree, values)))
    parts = pruned(parts, _only_looks)
    is_whole = {name: is_same(parts[name], whole.get(name, [])) for name in parts}
    return {name: of_whole[name] if is_whole[name] else _digest(parts[name]) for name in sorted(parts)}


def loaded_names(tree: ast.Module, values: Mapping[str, str | None]) -> set[str]:
    """Return all names that load what runs under the texts `values`: a setting that is not among them has no effect."""
    known = switches(tree, without_rivals(tree, values))
    parts = _live_parts(tree, known)
    # The test of a branch that runs is what its variable has an effect by.
    tested = _parts(_left(tree, known, keeps_tests=True))
    # What a branch defines has no part of its own where its test stays.
    tested = pruned({name: tested.get(name, parts[name]) for name in parts}, _only_looks)
    return {word for part in tested.values() for node in part for kept in _trimmed(node) for word in _loads(kept)}


def _live_parts(tree: ast.Module, known: Switches) -> dict[str, list[ast.stmt]]:
    """Return the parts of a script that run, without the branches of them that do not."""
    whole = _parts(tree)
    # A setting whose read of a variable is decided stays a setting, and is no part.
    parts = {name: nodes for name, nodes in _parts(_left(tree, known)).items() if name in whole}
    reached, seen, any_name = _starts(parts, tree), set[str](), any(map(_computes_a_name, ast.walk(tree)))
    # What only a print calls runs, too.
    waiting = [*(s for name in parts if name in reached for s in parts[name]), *filter(_is_text, tree.body)]
    by_word = dict[str, list[str]]()
    for name in parts:
        for word in {*name.split(".", 1)}:
            by_word.setdefault(word, []).append(name)
    while waiting:
        words = {*_loads(waiting.pop())} - seen
        seen |= words
        for name in {name for word in words for name in by_word.get(word, ())} - reached:
            # A method runs on objects of its class, which something makes by name, and by its own name or PyTorch's.
            kind, _, method = name.partition(".")
            is_called = not method or method in seen or method in CALLED or method.startswith("__")
            if kind in seen and (is_called or any_name):
                reached.add(name)
                waiting += parts[name]
    return {name: parts[name] for name in parts if name in reached}


def _computes_a_name(node: ast.AST) -> bool:
    """Tell whether a node reads an attribute by a name that is computed, of something else than PyTorch."""
    is_read = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr" and len(node.args) > 1
    return is_read and not isinstance(node.args[1], ast.Constant) and getattr(node.args[0], "id", "") != "torch"  # type: ignore[attr-defined]


def _left(tree: ast.Module, known: Switches, *, keeps_tests: bool = False) -> ast.Module:
    """Return a script without what does not run. What is left decides more, as fewer statements store to something."""
    for _ in range(MOST_PASSES):
        body = reduced(tree.body, with_constants(tree, known), keeps_tests=keeps_tests)
        if is_same(body, tree.body):
            break
        tree = ast.Module(body, [])
    return tree


def effective(tree: ast.Module, loads: set[str]) -> set[str]:
    """Return the variables whose values reach what `loads` names, also by the setting that holds them."""
    holders = dict[str, set[str]]()
    bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
    for body in bodies:
        for node in body:
            if _is_setting(node):
                variables = [found[0] for inner in ast.walk(node) if (found := variable_of(inner)) is not None]
                for name in variables:
                    holders.setdefault(name, set()).add(_target(node))
                # Settings that are made of others.
                loads = loads | {*_loads(node)} - {_target(node), *variables}
    everywhere = {found[0] for node in ast.walk(tree) if (found := variable_of(node)) is not None}
    return {name for name in everywhere if name in loads or name not in holders or holders[name] & loads}


def _starts(parts: Mapping[str, list[ast.stmt]], tree: ast.Module) -> set[str]:
    """Return the parts that run without being called: statements of the module."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    defined = {node.name for node in tree.body if isinstance(node, kinds)}
    # A constant of the module counts where something reads it.
    values = {name for name, nodes in parts.items() if all(_is_value(node) for node in nodes)}
    return {name for name in parts if name.partition(".")[0] not in defined} - values


def _is_value(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign | ast.AnnAssign) and bool(_target(node)) and _only_looks(node)


def _loads(node: ast.AST) -> Iterator[str]:
    """Yield every name, attribute and text in a node; a text may be a name for `getattr`."""
    for inner in ast.walk(node):
        for key in ("id", "attr", "arg"):
            if isinstance(value := getattr(inner, key, None), str):
                yield value
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str) and inner.value.isidentifier():
            yield inner.value


def _parts(tree: ast.Module) -> dict[str, list[ast.stmt]]:
    """Return the statements of a script by the names of what they define."""
    parts = dict[str, list[ast.stmt]]()
    for node in _with_branches(tree.body):
        if isinstance(node, ast.ClassDef):
            _add_class(node, parts)
        elif not (_imports(node) or _is_text(node) or _is_setting(node) or _only_prints(node)):
            parts.setdefault(getattr(node, "name", "") or _target(node) or "statements", []).append(node)
    for name in _imported_within(tree) & {name.partition(".")[0] for name in parts}:
        # A function that imports something by the name of a part calls that in its place.
        parts.setdefault(name, []).append(ast.Expr(ast.Call(ast.Name("imported", ast.Load()), [], [])))
    return parts


def _only_prints(node: ast.stmt) -> bool:
    """Tell whether a statement defines what statements call to print something, which returns nothing."""
    is_log = isinstance(node, ast.FunctionDef) and node.name in PRINTS
    return is_log and not any(isinstance(inner, ast.Return | ast.Yield) and inner.value for inner in ast.walk(node))


def _imported_within(tree: ast.Module) -> set[str]:
    """Return the names that functions and classes of a script import."""
    inside = [
        n for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom | ast.Try) for n in ast.walk(node)
    ]
    imports = [node for node in inside if isinstance(node, ast.Import | ast.ImportFrom)]
    return {(alias.asname or alias.name).partition(".")[0] for node in imports for alias in node.names}


def _with_branches(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, and those of their branches: what a branch defines takes the place of what has its name."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from _with_branches([*node.body, *node.orelse])


def _add_class(kind: ast.ClassDef, parts: dict[str, list[ast.stmt]]) -> None:
    if kind.bases:
        parts[kind.name] = [ast.Expr(base) for base in kind.bases]
    for part in kind.body:
        name = getattr(part, "name", "") or _target(part)
        if not (name and _is_setting(part)) and not _is_text(part):
            parts.setdefault(f"{kind.name}.{name}" if name else kind.name, []).append(part)


def _digest(parts: list[ast.stmt]) -> str:
    statements = itertools.chain.from_iterable(map(_trimmed, parts))
    content = "\x1f".join(itertools.chain.from_iterable(_words(s, _renamed(s)) for s in statements))
    return hashlib.sha256(content.encode()).hexdigest()[:DIGITS]


def _trimmed(node: ast.stmt, unread: frozenset[str] = frozenset(), *, guards: bool = True) -> list[ast.stmt]:
    """Return a statement without what has no effect on the numbers, as a list of one or none.

    `unread` are variables that nothing reads. Without `guards` errors stay, as something may catch them.
    """
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        # Without its prints a function may have variables that nothing reads any more.
        for _ in range(3):
            node = _rebuilt(node, unread, guards=True)
            if (fewer := _unread(node)) <= unread:
                break
            unread |= fewer
        return [inlined(without_copies(node))]
    if _is_text(node) or isinstance(node, _NOTHING) or (guards and isinstance(node, ast.Assert)):
        return []
    if isinstance(node, ast.Expr) and guards and _only_looks(node.value):
        return []
    if isinstance(node, ast.Delete) and all(isinstance(target, ast.Name) for target in node.targets):
        return []
    if isinstance(node, ast.Assign) and (_target(node) in VALIDATES or _keeps(node)):
        return []
    if unread and filled(node, _only_looks) in unread:
        return []
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and _target(node) in unread:
        if _only_looks(node):
            return []
        if node.value is not None and len(getattr(node, "targets", [node])) == 1:
            return [ast.Expr(node.value)]
    if isinstance(node, ast.If) and guards and not node.orelse and len(node.body) == 1:
        raised = node.body[0].exc if isinstance(node.body[0], ast.Raise) else None
        called = getattr(raised, "func", None)
        if isinstance(called, ast.Name) and _ERROR.fullmatch(called.id) and _only_looks(node.test):
            return []
    rebuilt = _rebuilt(node, unread, guards=guards)
    is_empty = isinstance(node, ast.If | ast.For) and not (
        getattr(rebuilt, "body", ()) or getattr(rebuilt, "orelse", ())
    )
    return [] if is_empty and _only_looks(getattr(node, "test", getattr(node, "iter", None))) else [rebuilt]


def _keeps(node: ast.Assign) -> bool:
    """Tell whether an assignment leaves a name what it is."""
    return len(node.targets) == 1 and bool(_target(node)) and _target(node) == getattr(node.value, "id", "")


def _rebuilt(node: Any, unread: frozenset[str], *, guards: bool) -> Any:
    fields = dict(ast.iter_fields(node))
    for name, value in fields.items():
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            # What a `try` catches may be one of the errors.
            own = guards and not (isinstance(node, ast.Try) and name == "body")
            fields[name] = [kept for inner in value for kept in _trimmed(inner, unread, guards=own)]
        elif isinstance(value, list) and value and isinstance(value[0], ast.ExceptHandler | ast.match_case):
            fields[name] = [_rebuilt(inner, unread, guards=guards) for inner in value]
    return type(node)(**fields)


def _unread(function: ast.AST) -> frozenset[str]:
    """Return the variables of a function that are assigned and never read."""
    nodes = [node for node in ast.walk(function) if isinstance(node, ast.Name | ast.Global | ast.Nonlocal)]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    outside = {name for node in nodes if not isinstance(node, ast.Name) for name in node.names}
    # A text may be the name of a variable for locals(), eval or an f-string that was not read.
    read = {name.id for name in names if isinstance(name.ctx, ast.Load)} | outside
    own = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return frozenset((own - read) | (unread_containers(function, _only_looks) & own - outside))


def _only_looks(node: ast.AST | None) -> bool:
    """Tell whether an expression or an assignment has no effect but its value."""
    if node is None or (isinstance(node, ast.Assign) and len(node.targets) != 1):
        return False
    for inner in ast.walk(node):
        if isinstance(inner, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom):
            return False
        if isinstance(inner, ast.Call) and getattr(inner.func, "id", getattr(inner.func, "attr", "")) not in _LOOKS:
            return False
    return True


def _renamed(node: ast.stmt) -> dict[str, str]:
    """Return the own variables of a function by their order; parameters keep their names, by which calls pass them."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return {}
    return {name: f"own {place}" for place, name in enumerate(own_variables(node))}


def _words(node: Any, own: Mapping[str, str]) -> Iterator[str]:
    """Yield what a node consists of, the same from every version of Python; `own` renames variables."""
    if isinstance(node, list):
        for item in node:
            yield from _words(item, own)
        yield "]"
    elif not isinstance(node, ast.AST):
        yield repr(node)
    elif isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and str(node.value).strip("\n") == ""):
        # Where this Python cannot read an f-string, `parse` gives an empty text for it.
        yield "text"
    elif isinstance(node, ast.Name) and node.id in own:
        yield own[node.id]
    elif isinstance(node, ast.Return) and isinstance(node.value, ast.Constant) and node.value.value is None:
        yield from _words(ast.Return(), own)
    elif isinstance(node, ast.AnnAssign):
        yield from _words(ast.Assign([node.target], node.value), own) if node.value else ()
    else:
        yield type(node).__name__
        for key, value in ast.iter_fields(node):
            if key not in _SKIPPED:
                yield from _words(value, own)


def _is_text(node: ast.AST) -> bool:
    """Tell whether a statement is a documentation string, prints something, or chooses a kernel of attention."""
    value = node.value if isinstance(node, ast.Expr) else None
    called = getattr(value, "func", None)
    if called is None:
        return isinstance(value, ast.Constant)
    return getattr(called, "id", getattr(called, "attr", "")) in (*PRINTS, *KERNELS) or ast.unparse(called) in FREES


def _imports(node: ast.AST) -> bool:
    """Tell whether a statement imports, also one of several packages."""
    if isinstance(node, ast.Try):
        inner = [*node.body, *node.orelse, *node.finalbody, *(s for handler in node.handlers for s in handler.body)]
        return all(_imports(statement) or isinstance(statement, ast.Pass | ast.Raise) for statement in inner)
    return isinstance(node, ast.Import | ast.ImportFrom)


def _target(node: ast.AST) -> str:
    """Return the name that a statement assigns to, empty for other statements."""
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    return getattr(targets[0], "id", "")


def _is_setting(node: ast.AST) -> bool:
    """Tell whether an assignment reads a variable: its default is compared as a value."""
    return bool(_target(node)) and reads_environment(node)
