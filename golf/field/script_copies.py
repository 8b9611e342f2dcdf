"""Variables of a script's functions that are another name for something, and containers that nothing reads.

`y = x` says nothing where both stay what they are, and `method = model.forward` says nothing where it is only called.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from golf.field.script_inlining import Function, assigned_name, own_variables

FILLS = {"append", "add", "extend", "update", "setdefault", "insert"}  # methods that put something into a container
MADE = {"list", "dict", "set", "defaultdict", "OrderedDict", "Counter", "deque"}  # calls that make a new container
_FRESH = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_LATER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


@dataclass
class Block:
    """A list of statements: their numbers in the order of the source are those from `start` to before `end`."""

    start: int
    end: int = 0


@dataclass
class Read:
    """One read of a variable, in the statement of a number."""

    number: int
    is_called: bool
    is_later: bool  # in a function within this one


@dataclass
class Names:
    """Stores and reads of a function's variables by name, without those in f-strings, which digests leave out."""

    statements: list[tuple[ast.stmt, Block]] = field(default_factory=list)  # by number, with the block of each
    stored: dict[str, int] = field(default_factory=dict)  # the number of the first statement that stores to a name
    reads: dict[str, list[Read]] = field(default_factory=dict)

    def add(self, body: list[ast.stmt]) -> None:
        """Add the statements of a block and of those within it."""
        block = Block(len(self.statements))
        for node in body:
            number, inner = len(self.statements), [*_blocks(node)]
            self.statements.append((node, block))
            inside = {id(part) for of in inner for part in of}
            for read_name, read in _reads(node, inside, number, False):
                self.reads.setdefault(read_name, []).append(read)
            # The target of a loop is another value in each pass.
            for name in () if isinstance(node, (*_LATER, *_LOOPS)) else _stores(node, inside):
                self.stored.setdefault(name, number)
            for of in inner:
                self.add(of)
        block.end = len(self.statements)


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of a statement, none of a function within."""
    for value in () if isinstance(node, _LATER) else (value for _, value in ast.iter_fields(node)):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield value
        elif isinstance(value, list) and value and isinstance(value[0], ast.ExceptHandler | ast.match_case):
            for part in value:
                yield part.body


def _reads(node: ast.AST, inside: set[int], number: int, is_later: bool) -> Iterator[tuple[str, Read]]:
    """Yield the variables that a statement reads itself, without the statements `inside` its blocks."""
    is_later = is_later or isinstance(node, _LATER)
    called = node.func if isinstance(node, ast.Call) else None
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
            yield inner.id, Read(number, inner is called, is_later)
        elif id(inner) not in inside and not isinstance(inner, ast.JoinedStr):
            yield from _reads(inner, inside, number, is_later)


def _stores(node: ast.AST, inside: set[int]) -> Iterator[str]:
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield inner.id
        elif id(inner) not in inside:
            yield from _stores(inner, inside)


def without_copies(function: Any) -> Any:
    """Return a function that says what each copy stands for, the same one where it has none."""
    values, gone = dict[str, ast.expr](), set[int]()
    for name, value, statement in _copies(function):
        values[name] = _replaced(value, set(), values)
        gone.add(id(statement))
    return _replaced(function, gone, values) if gone else function


def _copies(function: Function) -> Iterator[tuple[str, ast.expr, ast.stmt]]:
    """Yield the variables that only name something, with what they name and where, in the order of the source."""
    count = Counter((n.id, isinstance(n.ctx, ast.Load)) for n in ast.walk(function) if isinstance(n, ast.Name))
    once = {name for name in own_variables(function) if count[name, False] == 1}
    if not once:
        return
    fixed = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)} - _rebound(function, count)
    attributes = (n for n in ast.walk(function) if isinstance(n, ast.Attribute))
    changed = {n.attr for n in attributes if not isinstance(n.ctx, ast.Load)}
    names = Names()
    names.add(function.body)
    for number, (node, block) in enumerate(names.statements):
        name, value = assigned_name(node), getattr(node, "value", None)
        if name not in once or not isinstance(value, ast.Name | ast.Attribute | ast.Constant):
            continue
        if (of := _named(value)) == name or not (of or isinstance(value, ast.Constant)):
            continue
        is_method = isinstance(value, ast.Attribute)
        first = names.stored.get(of, number)
        # What runs behind a statement of a block has run that, too.
        is_there = not of or of in fixed or (of in once and first < number < names.statements[first][1].end)
        reads = [r for r in names.reads.get(name, ()) if number < r.number < block.end and not r.is_later]
        is_all = len(reads) == len(names.reads.get(name, ())) and all(r.is_called or not is_method for r in reads)
        if is_there and is_all and not (isinstance(value, ast.Attribute) and value.attr in changed):
            yield name, value, node


def _rebound(function: Function, count: Counter[tuple[str, bool]]) -> set[str]:
    """Return the names that something stores to, or that a function within this one takes for something else."""
    inside = [n for n in ast.walk(function) if isinstance(n, _LATER) and n is not function]
    names = {a.arg for node in inside for a in ast.walk(node) if isinstance(a, ast.arg)}
    return names | {getattr(node, "name", "") for node in inside} | {name for (name, is_load) in count if not is_load}


def _named(value: Any) -> str:
    """Return the variable that a value is, or whose method it may be; empty for other values."""
    return getattr(value.value if isinstance(value, ast.Attribute) else value, "id", "")


def _replaced(node: Any, gone: set[int], values: Mapping[str, ast.expr]) -> Any:
    """Return a node without the statements `gone` and with `values` in the place of their names."""
    if isinstance(node, ast.Name):
        return values.get(node.id, node) if isinstance(node.ctx, ast.Load) else node
    if not isinstance(node, ast.AST) or isinstance(node, ast.JoinedStr):
        return node
    fields = dict[str, Any]()
    for key, value in ast.iter_fields(node):
        if isinstance(value, list):
            fields[key] = [_replaced(item, gone, values) for item in value if id(item) not in gone]
        else:
            fields[key] = _replaced(value, gone, values)
    return type(node)(**fields)


def filled(node: ast.stmt, only_looks: Callable[[ast.AST | None], bool]) -> str:
    """Return the container that a statement puts something into and does nothing else, empty for other statements."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        values = [*node.value.args, *(keyword.value for keyword in node.value.keywords)]
        is_fill = node.value.func.attr in FILLS and all(map(only_looks, values))
        return getattr(node.value.func.value, "id", "") if is_fill else ""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
        target = node.targets[0]
        return getattr(target.value, "id", "") if only_looks(target.slice) and only_looks(node.value) else ""
    return ""


def unread_containers(function: ast.AST, only_looks: Callable[[ast.AST | None], bool]) -> set[str]:
    """Return the variables of a function that are new containers, are filled, and that nothing looks into."""
    made, others, fills = set[str](), set[str](), Counter[str]()
    stores = Counter(n.id for n in ast.walk(function) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load))
    for node in ast.walk(function):
        if isinstance(node, ast.Global | ast.Nonlocal):
            others |= set(node.names)
        elif isinstance(node, ast.arg):
            others.add(node.arg)
        elif isinstance(node, ast.stmt):
            fills[filled(node, only_looks)] += 1
            if name := assigned_name(node):
                stores[name] -= 1
                (made if _is_new(getattr(node, "value", None)) else others).add(name)
    loads = Counter(n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
    return {name for name in made - others if not stores[name] and loads[name] == fills[name]}


def _is_new(value: Any) -> bool:
    called = getattr(value, "func", None)
    return isinstance(value, _FRESH) or getattr(called, "id", getattr(called, "attr", "")) in MADE
