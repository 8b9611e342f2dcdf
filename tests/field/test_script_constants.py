"""What is left of a script when arguments and attributes decide its branches does what Python does with the whole."""

from __future__ import annotations

import ast
import os
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golf.field.script_digests import _left, _only_looks, _parts, digests, live_digests
from golf.field.script_pruning import pruned
from golf.field.script_switches import switches

SCRIPT = """
import os

trace = []


class Hyperparameters:
    gate = int(os.environ.get("GATE", "0"))
    depth = int(os.environ.get("DEPTH", "1"))


args = Hyperparameters()


def f(value):
    trace.append(value)
    return value


class Gate:
    def __init__(self, size, mode={default}, scale=0):
        self.mode = mode
        self.size = size
        self.unread = scale
{init}

    def passed(self, value, more=0):
{passed}

    def forward(self, x):
{forward}
        return x


class Block:
    def __init__(self, gate, size):
        self.gate = Gate({gate})
        self.is_on = gate

    def forward(self, x):
        if self.is_on:
            x = self.gate.forward(x)
        return f(x)


def mixed(x, y, weight={default}, *, times=1):
{mixed}
    return x


def quiet(value, more=0):
{quiet}


class Lone:
    def __init__(self, scale):
        self.scale = scale if args.gate else None
        self.rank = {lone}


def asked(lone, x):
    return f(x) if lone.scale is None else lone.rank


def run(x, y):
    a, b = Block({block}), Block({other})
    lone = Lone({size})
{run}
    y = asked(lone, y)
    return a.forward(mixed({call})), b.forward(y)
"""
VALUES = ["0", "1", "2", "args.gate", "args.depth", "args.gate > 0"]
KNOWN_THERE = {  # what the parts of the script may read
    "init": ["mode", "scale", "size"],
    "forward": [
        *("self.mode", "self.size", "x", "getattr(self, 'unread', 3)"),
        *("self.passed(x)", "self.passed(x, more=f(3))", "self.passed(more=x, value=f(2))", "self.passed(1, x)"),
    ],
    "mixed": ["x", "y", "weight", "times"],
    "run": ["x", "y", "a.is_on", "b.is_on", "lone.scale", "lone.rank", "quiet(x)", "quiet(1, y)", "quiet(f(2))"],
}
STORES = {"init": ["self.mode", "self.size", "size"], "forward": ["x", "self.mode", "self.other"]} | {
    "run": ["x", "y", "b.is_on", "lone.rank"]
}
QUIET = [
    "    return 2",
    "    return None",
    "    pass",
    "    return value",
    "    if args.gate:\n        return f(value)\n    return 0",
    "    if more:\n        return 1\n    return 0",
]


@st.composite
def bodies(draw: st.DrawFn, place: str, deep: int) -> str:
    """Return the indented body of a part."""
    lines, known = list[str](), [*KNOWN_THERE[place], *VALUES]
    for _ in range(draw(st.integers(1, 2))):
        test, value = draw(st.sampled_from(known)), draw(st.sampled_from(known))
        target = draw(st.sampled_from(STORES.get(place, ["x", "y"])))
        done = draw(
            st.sampled_from([f"{target} = {value}", f"f({value})", f"{target} = {value} if {test} else f({value})"])
        )
        lines += [f"if {test}:", f"    {done}"] if draw(st.booleans()) else [done]
    return "\n".join(" " * deep + line for line in lines)


@st.composite
def scripts(draw: st.DrawFn) -> str:
    value = st.sampled_from(VALUES)
    one = st.sampled_from([*VALUES, "x"])
    gates = [
        f"size, {draw(value)}",
        f"size, mode={draw(value)}",
        "size",
        "size, gate",
        f"size=size, scale={draw(value)}",
    ]
    calls = [f"x, {draw(one)}", f"x, y, {draw(value)}", f"x, y, times={draw(one)}", f"y=y, x=x, weight={draw(one)}"]
    return SCRIPT.format(
        default=draw(st.sampled_from(["0", "1"])),
        gate=draw(st.sampled_from(gates)),
        block=f"{draw(value)}, {draw(one)}",
        other=f"gate={draw(value)}, size={draw(one)}",
        call=draw(st.sampled_from(calls)),
        init=draw(bodies("init", 8)),
        forward=draw(bodies("forward", 8)),
        mixed=draw(bodies("mixed", 4)),
        run=draw(bodies("run", 4)),
        quiet=draw(st.sampled_from(QUIET)),
        passed=draw(st.sampled_from([*QUIET, "    return more"]))
        .replace("    ", "        ", 1)
        .replace("\n", "\n    "),
        lone=draw(value),
        size=draw(one),
    )


def joined(parts: dict[str, list[ast.stmt]]) -> ast.Module:
    """Return the script that consists of parts, of which those of the settings are left out."""
    body = ast.parse(SCRIPT.partition("\n\ndef f(")[0].format(default=0)).body
    for name, statements in parts.items():
        kind, dot, _ = name.partition(".")
        if dot and kind != "Hyperparameters":
            made = next((node for node in body if getattr(node, "name", "") == kind), None)
            if made is None:
                body.append(made := ast.ClassDef(kind, [], [], [], []))
            made.body += statements  # type: ignore[attr-defined]
        elif not dot and name not in ("args", "trace"):
            body += statements
    tree = ast.Module(body, [])
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.FunctionDef) and not node.body:
            node.body = [ast.Pass()]
    return ast.fix_missing_locations(tree)


def outcome_of(tree: ast.Module, inputs: tuple[int, int]) -> Any:
    ran = dict[str, Any]()
    exec(compile(ast.unparse(tree), "script", "exec"), ran)
    try:
        return ran["run"](*inputs), ran["trace"]
    except (UnboundLocalError, AttributeError) as error:
        return type(error), ran["trace"]


@given(
    scripts(),
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
    st.dictionaries(st.sampled_from(["GATE", "DEPTH"]), st.sampled_from(["0", "1", "2"])),
)
def test_what_is_left_does_what_the_whole_does(source: str, inputs: tuple[int, int], texts: dict[str, str]) -> None:
    tree = ast.parse(source)
    less = joined(pruned(_parts(_left(tree, switches(tree, texts))), _only_looks))
    with patch.dict(os.environ, texts, clear=True):
        whole = outcome_of(tree, inputs)
        if not isinstance(whole[0], type):
            assert outcome_of(less, inputs) == whole, ast.unparse(less)


PLAIN = """
class Gate:
    def __init__(self, size):
        self.size = size

    def forward(self, x):
        return x * self.size


gate = Gate(width())
print(gate.forward(1))
"""
MODES = (
    PLAIN.replace("(self, size)", "(self, size, mode='plain', rank=0)")
    .replace("self.size = size", "self.size = size\n        self.mode, self.rank = mode, rank")
    .replace("self.mode, self.rank = mode, rank", "self.mode = mode\n        self.rank = rank")
    .replace("return x", "if self.mode == 'double':\n            x = x + x * self.rank\n        return x")
)


def what_runs(text: str, **texts: str) -> dict[str, str]:
    tree = ast.parse(SCRIPT.partition("\n\ndef f(")[0].format(default=0) + text)
    return live_digests(tree, texts, digests(tree))


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        ("", "", True),
        ("Gate(width())", "Gate(width(), 'plain', 3)", True),
        ("Gate(width())", "Gate(width(), rank=args.depth)", True),
        ("Gate(width())", "Gate(width(), mode='double' if args.gate else 'plain')", True),
        ("mode='plain', rank=0", "mode='double', rank=0", False),
        ("Gate(width())", "Gate(width(), mode='double')", False),
        ("Gate(width())", "Gate(width(), mode=mode())", False),
        ("Gate(width())", "Gate(width(), *modes)", False),
        ("Gate(width())", "Gate(width(), **modes)", False),
        ("gate = Gate(width())", "gate = Gate(width())\ngate.mode = 'double'", False),
        ("gate = Gate(width())", "gate = Gate(width())\nsetattr(gate, 'mode', 'double')", False),
        ("gate = Gate(width())", "gate = Gate(width())\nsetattr(gate, name(), 'double')", False),
        ("gate = Gate(width())", "make = Gate\ngate = make(width())\nGate(width())", False),
        ("gate = Gate(width())", "class Own(Gate):\n    pass\n\n\ngate = Own(width(), 'double')\nGate(width())", False),
    ],
)
def test_a_part_that_every_call_switches_off_is_none(before: str, after: str, is_same: bool) -> None:
    plain, modes = what_runs(PLAIN), what_runs(MODES.replace(before, after) if before else MODES)
    names = ("Gate.__init__", "Gate.forward")
    assert ([modes[name] for name in names] == [plain[name] for name in names]) is is_same
