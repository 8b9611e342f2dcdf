"""Several modules in one namespace: imports between them go, and equal names of two modules are told apart."""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from golf.errors import GolfError
from golf.submission.script.modules import Module, file_in, is_ours
from golf.submission.script.syntax import Uses, bound_names, is_docstring, uses_of

Names = dict[tuple[str, str], str]  # (module, name there) → name in the bundle


@dataclass
class Section:
    """The statements that are left of one module, in its order."""

    name: str
    about: str  # the module's docstring
    body: list[ast.stmt] = field(default_factory=list)


@dataclass
class Flat:
    """One namespace: `sections` in the order in which they can run, `imports` of other packages by bound name."""

    sections: list[Section]
    imports: dict[str, ast.stmt]
    _uses: dict[int, Uses] = field(default_factory=dict)

    def statements(self) -> Iterator[ast.stmt]:
        """Yield the top-level statements of all sections."""
        for section in self.sections:
            yield from section.body

    def nodes(self) -> list[ast.AST]:
        """Return all nodes of the top-level statements."""
        return [node for statement in self.statements() for node in ast.walk(statement)]

    def uses(self, statement: ast.stmt) -> Uses:
        """Return what a top-level statement uses, from memory until `changed` is called."""
        if id(statement) not in self._uses:
            self._uses[id(statement)] = uses_of(statement)
        return self._uses[id(statement)]

    def changed(self, statement: ast.stmt) -> None:
        """Forget what `statement` uses. Whoever edits a top-level statement calls this."""
        self._uses.pop(id(statement), None)


def flatten(modules: Sequence[Module]) -> Flat:
    """Put `modules`, each after those that it needs, into one namespace. Changes their trees."""
    names = _unique_names(modules)
    for module in modules:
        # What a package's __init__ imports can be imported from the package, too.
        names.update({(module.name, name): names[source] for name, source in module.names.items()})
    sections, imports = [], {}
    for module in modules:
        section = Section(module.name, ast.get_docstring(module.tree) or "")
        for node in module.tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports.update(_external(node))
            elif not is_docstring(node):
                _rename(node, module, names)
                _drop_lazy_imports(node)
                section.body.append(node)
        sections.append(section)
    return Flat(sections, imports)


def _unique_names(modules: Sequence[Module]) -> Names:
    """Return the bundle's name of every definition: its own, or with the module's in front where another has it."""
    owned = [(m.name, name) for m in modules for node in m.tree.body for name in _defines(node)]
    # Most names are unique in the package, and the readable form keeps them as they are.
    taken = Counter(name for _, name in dict.fromkeys(owned))
    foreign = {alias for m in modules for node in m.tree.body for alias in _external(node)} | set(dir(builtins))
    unique: Names = {}
    for module, name in owned:
        is_unique = taken[name] == 1 and name not in foreign
        unique[module, name] = name if is_unique else f"{module.rpartition('.')[2]}_{name}"
    return unique


def _defines(node: ast.stmt) -> list[str]:
    """Return the names that a top-level statement defines; raise `GolfError` for one that a bundle cannot hold."""
    is_main = isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
    if isinstance(node, ast.Import | ast.ImportFrom) or is_docstring(node) or is_main:
        return []
    if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign):
        # Its side effects could not be told from those of code that the configuration does not select.
        raise GolfError(f"A statement at the top of a module cannot be exported: {ast.unparse(node)[:80]!r}.")
    return sorted(bound_names([node]))


def _external(node: ast.AST) -> dict[str, ast.stmt]:
    """Return name → statement that binds it alone, for each name that `node` imports from another package."""
    if isinstance(node, ast.ImportFrom) and node.module not in (None, "__future__") and not is_ours(node):
        return {a.asname or a.name: ast.ImportFrom(node.module, [a], 0) for a in node.names}
    if isinstance(node, ast.Import):
        return {a.asname or a.name.split(".")[0]: ast.Import([a]) for a in node.names}
    return {}


def _rename(node: ast.stmt, module: Module, names: Names) -> None:
    """Give what a top-level statement defines and refers to its name in the bundle."""
    lazy = {a.asname or a.name for n in ast.walk(node) if is_ours(n) for a in n.names}
    for n in ast.walk(node):
        # A name that a function imports from the package is its local one here, but not in the bundle.
        if isinstance(n, ast.Name) and n.id in lazy and n.id in module.names:
            n.id = names[module.names[n.id]]
    used = uses_of(node)
    for name in [*used.names, *used.types]:
        name.id = names.get(module.names.get(name.id, (module.name, name.id)), name.id)
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        node.name = names[module.name, node.name]


def _drop_lazy_imports(node: ast.stmt) -> None:
    """Drop `from golf.x import name` within functions. The import of a module stays, to be refused if it is reached."""
    for parent in ast.walk(node):
        for name, body in list(ast.iter_fields(parent)):
            if isinstance(body, list) and any(map(is_ours, body)):
                kept = [n for n in body if not is_ours(n) or any(file_in(f"{n.module}.{a.name}") for a in n.names)]
                setattr(parent, name, kept or [ast.Pass()])
