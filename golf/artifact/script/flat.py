"""Several modules in one namespace: imports between them go, and names that two of them use are told apart."""

from __future__ import annotations

import ast
import builtins
import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from golf.artifact.script.modules import PACKAGE, Module, is_module
from golf.artifact.script.scopes import Uses, bound_names, uses_of, walk
from golf.errors import GolfError


@dataclass
class Section:
    """What is left of one module, in its order."""

    name: str
    about: str  # its docstring
    body: list[ast.stmt] = field(default_factory=list)


@dataclass
class Flat:
    """One namespace: `sections` in the order in which they can run, `imports` of other packages by bound name."""

    sections: list[Section]
    imports: dict[str, ast.stmt]

    def statements(self) -> Iterator[ast.stmt]:
        for section in self.sections:
            yield from section.body

    def uses(self, statement: ast.stmt) -> Uses:
        """What a top-level statement uses; read again after `changed`."""
        if getattr(statement, "uses", None) is None:
            statement.uses = uses_of(statement)  # type: ignore[attr-defined]
        return statement.uses  # type: ignore[attr-defined]

    def copy(self) -> Flat:
        """A copy that can be edited."""
        for statement in self.statements():
            self.changed(statement)
        return copy.deepcopy(self)

    def changed(self, statement: ast.stmt) -> None:
        """To be said by whoever edits a top-level statement."""
        statement.uses = None  # type: ignore[attr-defined]
        for node in walk(statement):
            if isinstance(node, ast.FunctionDef):
                node.assigned = None  # type: ignore[attr-defined]


def flatten(modules: Sequence[Module]) -> Flat:
    """Put `modules` together, each after those that it needs."""
    new_names = _unique_names(modules)
    for module in modules:  # what a package's __init__ imports has its name there, too
        new_names.update({(module.name, name): new_names[source] for name, source in module.names.items()})
    sections, imports = [], {}
    for module in modules:
        section = Section(module.name, ast.get_docstring(module.tree) or "")
        for node in module.tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports.update(_external(node))
            elif not _is_docstring(node):
                _rename(node, module, new_names)
                section.body.append(node)
        sections.append(section)
    for section in sections:
        for node in section.body:
            _without_lazy_imports(node)
    return Flat(sections, imports)


def _unique_names(modules: Sequence[Module]) -> dict[tuple[str, str], str]:
    """(module, name) → name in the bundle: its own one if no other module has it, else with the module's in front."""
    owned = [(m.name, name) for m in modules for node in m.tree.body for name in _defines(node)]
    taken = Counter(name for _, name in dict.fromkeys(owned))
    foreign = {alias for m in modules for node in m.tree.body for alias in _external(node)} | set(dir(builtins))
    unique: dict[tuple[str, str], str] = {}
    for module, name in owned:
        clashes = taken[name] > 1 or name in foreign
        last = module.rpartition(".")[2]
        unique[module, name] = f"{'_' * name.startswith('_')}{last}_{name.lstrip('_')}" if clashes else name
    return unique


def _defines(node: ast.stmt) -> list[str]:
    allowed = (ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom)
    if isinstance(node, ast.Import | ast.ImportFrom) or _is_docstring(node) or _is_main(node):
        return []
    if not isinstance(node, allowed):
        raise GolfError(f"A statement at the top of a module cannot be exported: {ast.unparse(node)[:80]!r}.")
    return sorted(bound_names(node))


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def _external(node: ast.AST) -> dict[str, ast.stmt]:
    """Statements that bind one name each, for what `node` imports from other packages."""
    if isinstance(node, ast.ImportFrom) and node.module not in (None, "__future__"):
        if str(node.module).split(".")[0] != PACKAGE:
            return {a.asname or a.name: ast.ImportFrom(node.module, [a], 0) for a in node.names}
    elif isinstance(node, ast.Import):
        return {a.asname or a.name.split(".")[0]: ast.Import([a]) for a in node.names}
    return {}


class _Namespaces(ast.NodeTransformer):
    """`module.name` as the name that the bundle has for it."""

    def __init__(self, module: Module, new_names: dict[tuple[str, str], str]):
        self.modules, self.new_names = module.modules, new_names

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        source = self.modules.get(node.value.id, "") if isinstance(node.value, ast.Name) else ""
        return ast.Name(self.new_names[source, node.attr], node.ctx) if source else node


def _rename(node: ast.stmt, module: Module, new_names: dict[tuple[str, str], str]) -> None:
    """Give what a top-level statement defines and refers to its name in the bundle."""
    imported_here = {
        alias.asname or alias.name
        for n in walk(node)
        if isinstance(n, ast.ImportFrom) and str(n.module).split(".")[0] == PACKAGE
        for alias in n.names
    }
    for n in walk(node):  # names that a function imports from the package are the bundle's, too
        if isinstance(n, ast.Name) and n.id in imported_here and n.id in module.names:
            n.id = new_names[module.names[n.id]]
    for name in uses_of(node).names:
        source = module.names.get(name.id, (module.name, name.id))
        name.id = new_names.get(source, name.id)
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        node.name = new_names[module.name, node.name]
    _Namespaces(module, new_names).visit(node)


def _without_lazy_imports(node: ast.stmt) -> None:
    """Drop `from golf.x import y` within functions, and the import of a package for what it registers.

    A module as a value stays, to be found if it is ever reached.
    """
    for parent in walk(node):
        for name, body in list(ast.iter_fields(parent)):
            if isinstance(body, list) and any(map(_is_package_import, body)):
                setattr(parent, name, [n for n in body if not _is_package_import(n)] or [ast.Pass()])


def _is_package_import(node: object) -> bool:
    if isinstance(node, ast.Expr):
        return ast.unparse(node).startswith(f"importlib.import_module('{PACKAGE}.")
    if not isinstance(node, ast.ImportFrom) or str(node.module).split(".")[0] != PACKAGE:
        return False
    return not any(is_module(f"{node.module}.{alias.name}") for alias in node.names)
