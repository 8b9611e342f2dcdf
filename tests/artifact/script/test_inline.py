"""Short functions with one caller go into it, and programs give the same results as before."""

import ast

import pytest

from golf.artifact.script.inline import inline
from golf.artifact.script.shake import shake
from tests.artifact.script.test_fold import flat_of, run, text_of


def inlined(source: str) -> str:
    """Return the program with short functions in their callers; assert that it gives what the whole one gives."""
    before, flat = run(flat_of(source, "")), flat_of(source, "")
    while inline(flat):
        shake(flat, set())
    shake(flat, set())
    assert run(flat) == before
    return text_of(flat)


def test_a_chain_of_short_functions_becomes_one_expression() -> None:
    source = '''
def half(x):
    """Return x / 2."""
    return x / 2
def root(x, *, of=1):
    return half(x) ** of
def main():
    value = 3
    return root(value, of=2)
'''
    assert "def main():\n    return (value / 2) ** 2" in inlined(source).replace("value = 3\n    ", "")


@pytest.mark.parametrize(
    "function, call",
    [
        ("def f(x):\n    return x + x", "f([].append(1) or 2)"),  # its argument would be evaluated twice
        ("def f(x):\n    return x + outer", "[f(outer) for outer in (5, 6)]"),  # a local of the caller hides a name
        ("def f(x):\n    return [x for y in (1, 2)]", "[f(y) for y in (5, 6)]"),  # a local of its own hides an argument
        ("def f(x, y=2):\n    return x + y", "f(1)"),  # defaults are left where they are
        ("def f(x):\n    return x", "f(1) + f(2)"),  # two callers
        ("def f(*x):\n    return x", "f(1)"),
        ("def f(x):\n    x += 1\n    return x", "f(1)"),
        (f"def f(x):\n    return {' + '.join(['x'] * 40)}", "f(1)"),  # too long
        ("def f(x):\n    return x", "list(map(f, (1, 2)))"),  # not called by name
    ],
)
def test_what_would_change_or_be_hard_to_read_stays(function: str, call: str) -> None:
    text = inlined(f"outer = 10\n{function}\ndef main():\n    return {call}")
    assert any(isinstance(node, ast.FunctionDef) and node.name == "f" for node in ast.parse(text).body)


def test_a_function_with_a_comment_keeps_it() -> None:
    flat = flat_of("def f(x):\n    return x\ndef main():\n    return f(1)", "")
    first = next(flat.statements())
    assert isinstance(first, ast.FunctionDef)
    first.body[-1].above = ["# why"]  # type: ignore[attr-defined]
    inline(flat)
    assert "return f(1)" in text_of(flat)


def test_methods_and_properties_go_into_their_one_caller() -> None:
    source = """
class A:
    def __init__(self, size): self.size = size
    @property
    def middle(self): return self.size / 2
    def scaled(self, by): return self.middle * by
    def update(self, by): return self.size + by
    def twice(self, x): return x + x
def main():
    a, names, by = A(6), {}, 3
    names.update({1: 2})
    return [a.scaled(by), a.update(by), a.twice([].append(1) or 2), names]
"""
    text = inlined(source)
    assert "def scaled" not in text and "def middle" not in text and "a.size / 2 * by" in text
    assert "def update" in text  # dicts have one, too
    assert "def twice" in text  # its argument would be evaluated twice


@pytest.mark.parametrize("value", ["lambda: x + 1", "(x + n for n in (1, 2))"])
def test_what_runs_later_keeps_what_its_caller_had(value: str) -> None:
    """A lambda in the place of a call read the caller's local, which it had become itself by then."""
    source = f"def f(x):\n    return {value}\ndef main():\n    x = 1\n    later = f(x)\n    x = 5\n"
    assert "def f(x)" in inlined(f"{source}    return x + (later() if callable(later) else sum(later))")
