"""Names that statements use and bind, against Python's own symbol tables."""

import ast
import symtable
import sys
from collections.abc import Iterator

import pytest

from golf.submission.script.syntax import bound_names, uses_of
from tests.support import ROOT

FILES = sorted((ROOT / "golf").rglob("*.py"))


def globals_by_symtable(source: str) -> set[str]:
    """Names that some scope of the module refers to as global, or that its top level uses."""

    def visit(table: symtable.SymbolTable, top: bool) -> Iterator[str]:
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (top or symbol.is_global()):
                yield symbol.get_name()
        for child in table.get_children():
            yield from visit(child, False)

    return set(visit(symtable.symtable(source, "m", "exec"), True))


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="tables of Python 3.14 lack annotations that are never read")
@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_same_globals_as_python_finds(path) -> None:
    # Without the future import symtable sees annotations as the expressions that they are here, too.
    source = path.read_text().replace("from __future__ import annotations\n", "")
    uses = [uses_of(statement) for statement in ast.parse(source).body]
    found = {n.id for u in uses for n in [*u.names, *u.types] if isinstance(n.ctx, ast.Load)}
    assert found == globals_by_symtable(source)


def test_a_local_name_hides_a_global_one_only_where_it_is_local() -> None:
    statement = ast.parse("def f(x):\n    y = x + g\n    return [g for g in (lambda z: y + z + h)(x)]").body[0]
    names = [n.id for n in uses_of(statement).names]
    assert names.count("g") == 1 and "h" in names and not {"x", "y", "z"} & set(names)


def test_names_of_a_class_body_are_not_those_of_its_methods() -> None:
    statement = ast.parse("class A:\n    x = 1\n    y = x\n    def f(self):\n        return x").body[0]
    assert [n.id for n in uses_of(statement).names] == ["x"]


def test_bound_names_of_every_kind_of_statement() -> None:
    source = "import a.b, c as d\nfrom e import f\ng, (h, *i) = 1, (2, 3)\nwith x as j: pass\nfor k in x: l = 1\n"
    source += "try: pass\nexcept E as m: pass\ndef n(o): p = 1\nclass q: r = 1\n[s for s in x if (t := s)]"
    expected = {"a", "d", "f", "g", "h", "i", "j", "k", "l", "m", "n", "q", "t"}
    assert bound_names(ast.parse(source).body) == expected
