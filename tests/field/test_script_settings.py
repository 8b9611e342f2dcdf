"""The class of settings of a script, followed without running it, against what Python computes when it runs it."""

from __future__ import annotations

import ast
import os
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golf.field.script_switches import settings, switches, with_computed

NAMES = ("depth", "width", "rank", "is_on", "mode")
VARIABLES = ("DEPTH", "WIDTH", "RANK", "IS_ON", "MODE")
TEXTS = st.sampled_from(["0", "1", "2", "7"])


@st.composite
def expressions(draw: st.DrawFn, known: list[str], deep: int = 2) -> str:
    """Return the source of a number, made of variables, constants and the settings `known`."""
    kinds = ["constant", "variable", *(["setting"] if known else []), *(["sum", "choice", "test"] if deep else [])]
    kind = draw(st.sampled_from(kinds))

    def inner() -> str:
        return draw(expressions(known, deep - 1))

    if kind == "constant":
        return draw(st.sampled_from(["0", "1", "3", "True", "False"]))
    if kind == "setting":
        return draw(st.sampled_from(known))
    if kind == "variable":
        default = draw(st.sampled_from(['"1"', '"0"', *(f"str(int({name}))" for name in known), *known]))
        read = draw(st.sampled_from(["os.environ.get", "os.getenv"]))
        return f'int({read}("{draw(st.sampled_from(VARIABLES))}", {default}))'
    if kind == "sum":
        return f"({inner()} {draw(st.sampled_from(['+', '*', '-']))} {inner()})"
    if kind == "choice":
        return f"({inner()} if {inner()} else {inner()})"
    negated, sign = draw(st.sampled_from(["not ", ""])), draw(st.sampled_from([">", "==", "and", "or"]))
    return f"({negated}({inner()} {sign} {inner()}))"


@st.composite
def bodies(draw: st.DrawFn, known: list[str], deep: int = 1) -> list[str]:
    """Return the lines of a class body, of which later ones read what earlier ones and `known` set."""
    lines, known = list[str](), list(known)
    for _ in range(draw(st.integers(1, 4))):
        name, value = draw(st.sampled_from(NAMES)), draw(expressions(known))
        if deep and known and draw(st.booleans()):
            # Both branches set the same name, so that it is there afterwards.
            branches = [[*draw(bodies(known, deep - 1)), f"{name} = {draw(expressions(known))}"] for _ in range(2)]
            lines += [f"if {value}:", *indented(branches[0]), "else:", *indented(branches[1])]
        elif name in known and draw(st.booleans()):
            lines.append(f"{name} += {value}")
        else:
            lines.append(f"{name}{draw(st.sampled_from([': int', '']))} = {value}")
        known += [] if name in known else [name]
    return lines


def indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def script(body: list[str]) -> str:
    return "\n".join(["import os", "class Hyperparameters:", *indented(body), "args = Hyperparameters()"])


@given(bodies([]), st.dictionaries(st.sampled_from(VARIABLES), TEXTS))
def test_settings_are_what_python_makes_of_them(body: list[str], texts: dict[str, str]) -> None:
    source, ran = script(body), dict[str, Any]()
    with patch.dict(os.environ, {**dict.fromkeys(VARIABLES, ""), **texts}):
        for name in {*VARIABLES} - {*texts}:
            del os.environ[name]
        exec(source, ran)
    found, _ = settings(ast.parse(source), texts)
    own = {name: value for name, value in vars(ran["Hyperparameters"]).items() if name in NAMES}
    assert {name: value for name, value in found.items() if name in NAMES} == own
    known = switches(ast.parse(source), texts)
    for name, value in own.items():
        assert known.holds(ast.parse(f"args.{name}", mode="eval").body) is bool(value)


@pytest.mark.parametrize(
    "elsewhere",
    [
        "args.rank = 3",
        "Hyperparameters.rank = 3",
        "def main():\n    args.rank += 1",
        "setattr(args, 'rank', 3)",
        "exec('args.rank = 3')",
        "globals()['args'] = None",
        "args = other()",
        "for args.rank in range(3): pass",
        "for args in [other]: pass",
        "with other() as args: pass",
    ],
)
def test_a_setting_that_something_else_stores_to_decides_nothing(elsewhere: str) -> None:
    tree = ast.parse(f"{script(['rank = 0', 'depth = 0'])}\n{elsewhere}")
    assert holds(tree, "args.rank") is None
    assert holds(ast.parse(script(["rank = 0"])), "args.rank") is False


def test_what_the_class_itself_stores_on_its_objects_decides_nothing() -> None:
    tree = ast.parse(script(["rank, depth = 0, 0", "def __init__(self):", "    self.rank = 4"]))
    assert (holds(tree, "args.rank"), holds(tree, "args.depth")) == (None, False)
    # Whoever asks with a default gets it only where the setting is not there at all.
    assert holds(tree, "getattr(args, 'rank', 0)") is None
    assert holds(tree, "getattr(args, 'width', 0)") is False
    assert holds(tree, "getattr(other, 'width', 0)") is None


def test_one_side_can_decide_a_test_whose_other_side_is_unknown() -> None:
    tree = ast.parse(script(["rank, depth = 0, 1"]))
    assert holds(tree, "module.rank and args.rank") is False
    assert holds(tree, "not (module.rank or args.depth)") is False
    assert holds(tree, "module.rank or args.rank") is None


def test_a_default_that_is_made_of_another_setting_follows_it() -> None:
    body = [
        'rank = int(os.environ.get("RANK", "96"))',
        'short_rank = int(os.environ.get("SHORT_RANK", str(rank // 2)))',
    ]
    tree, defaults = ast.parse(script(body)), {"RANK": "96", "SHORT_RANK": None}
    assert with_computed(tree, defaults, {}) == {"RANK": "96", "SHORT_RANK": "48"}
    assert with_computed(tree, defaults, {"RANK": "8"}) == {"RANK": "96", "SHORT_RANK": "4"}
    unknown = ast.parse(script(["rank = module.rank()", body[1]]))
    assert with_computed(unknown, defaults, {}) == defaults


def holds(tree: ast.Module, test: str) -> bool | None:
    return switches(tree, {}).holds(ast.parse(test, mode="eval").body)
