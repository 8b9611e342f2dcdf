"""What is left of a function under a script's settings does what Python does when it runs the whole one."""

from __future__ import annotations

import ast
import os
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golf.field.script_digests import _trimmed, digests, effective, live_digests, loaded_names
from golf.field.script_kernels import without_kernels
from golf.field.script_reads import with_plain_reads
from golf.field.script_reduction import reduced
from golf.field.script_switches import switches

LOCALS = ("a", "b", "c", "d")
LISTS = ("p", "q")
INPUTS = ("x", "y")  # parameters, which no setting decides
SETTINGS = """
import os

trace = []
FLAG = int(os.environ.get("FLAG", "0"))


def f(value):
    trace.append(value)
    return value + 1


class Hyperparameters:
    depth = int(os.environ.get("DEPTH", "1"))
    is_on = bool(int(os.environ.get("IS_ON", "0")))


args = Hyperparameters()
"""


@st.composite
def values(draw: st.DrawFn, known: list[str], deep: int = 2) -> str:
    """Return the source of a value, made of inputs, settings, variables, and calls that leave a trace."""
    leaves = ["0", "1", "2", *INPUTS, "args.depth", "args.is_on", "FLAG", 'int(os.environ.get("LOCAL", "1"))', *known]
    if not deep or draw(st.booleans()):
        return draw(st.sampled_from(leaves))
    first, second, third = (draw(values(known, deep - 1)) for _ in range(3))
    forms = [
        f"f({first})",
        f"({first} + {second})",
        f"({first} if {second} else {third})",
        f"({first} {draw(st.sampled_from(['and', 'or', '>', '==']))} {second})",
        f"(not {first})",
    ]
    return draw(st.sampled_from(forms))


@st.composite
def blocks(draw: st.DrawFn, known: list[str], deep: int = 2) -> list[str]:
    """Return the lines of a block, whose variables are all of `known` or stored in it."""
    lines, known = list[str](), list(known)
    for _ in range(draw(st.integers(1, 4))):
        value, kind = (
            draw(values(known)),
            draw(st.sampled_from(["store", "store", "copy", "add", "if", "for", "inner", "leave", "list", "fill"])),
        )
        if kind == "store" or (kind == "add" and not known):
            name = draw(st.sampled_from(LOCALS))
            lines.append(f"{name} = {value}")
            known.append(name)
        elif kind == "copy":
            name = draw(st.sampled_from(LOCALS))
            lines.append(f"{name} = {draw(st.sampled_from([*INPUTS, *known]))}")
            known.append(name)
        elif kind == "list":
            lines.append(f"{draw(st.sampled_from(LISTS))} = []")
        elif kind == "fill":
            name = draw(st.sampled_from(LISTS))
            more = [f"{name}.append({value})", f"{name} += [{value}]", f"f(len({name}))", f"{name}[0] = {value}"]
            more += [f"if {name}:\n{' ' * 4}f({value})", f"if {value} in {name}:\n{' ' * 4}f(0)", f"q = {name}"]
            lines += draw(st.sampled_from(more)).splitlines()
        elif kind == "add":
            lines.append(f"{draw(st.sampled_from(known))} += {value}")
        elif kind == "leave":
            lines.append(f"return {value}" if deep < 2 else f"f({value})")
        elif deep and kind == "if":
            lines += [f"if {value}:", *_indented(draw(blocks(known, deep - 1)))]
            lines += ["else:", *_indented(draw(blocks(known, deep - 1)))] if draw(st.booleans()) else []
        elif deep and kind == "for":
            leave = draw(st.sampled_from(["continue", "break", "f(0)"]))
            lines += [
                f"for i in range({draw(st.integers(0, 2))}):",
                *_indented([*draw(blocks(known, deep - 1)), leave]),
            ]
        elif deep:
            parameter = draw(st.sampled_from([*LOCALS, "z"]))
            body = _indented([*draw(blocks([*known, parameter], 0)), f"return {parameter}"])
            lines += [f"def g({parameter}):", *body, f"f(g({value}))"]
    return lines or ["f(0)"]


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def outcome_of(tree: ast.Module, inputs: tuple[int, int]) -> Any:
    """Return what the function `run` of a script returns or raises, and its trace."""
    ran = dict[str, Any]()
    exec(compile(tree, "script", "exec"), ran)
    try:
        return ran["run"](*inputs), ran["trace"]
    except (UnboundLocalError, NameError, IndexError) as error:
        return type(error), ran["trace"]


@given(
    blocks([]),
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
    st.dictionaries(st.sampled_from(["FLAG", "DEPTH", "IS_ON", "LOCAL"]), st.sampled_from(["0", "1", "2"])),
)
def test_what_is_left_does_what_the_whole_does(body: list[str], inputs: tuple[int, int], texts: dict[str, str]) -> None:
    source = "\n".join([SETTINGS, "", f"def run({', '.join(INPUTS)}):", *_indented(body)])
    tree = ast.parse(source)
    known = switches(tree, texts)
    left = [
        kept
        for node in reduced(tree.body, known)
        for kept in (_trimmed(node) if isinstance(node, ast.FunctionDef) else [node])
    ]
    less = ast.Module(left, [])
    for node in ast.walk(less):
        # Digests need no statement where nothing is left, and Python does.
        if isinstance(node, ast.If | ast.For | ast.FunctionDef) and not node.body:
            node.body = [ast.Pass()]
    less = ast.parse(ast.unparse(ast.fix_missing_locations(less)))
    with patch.dict(os.environ, texts, clear=True):
        whole = outcome_of(tree, inputs)
        # What reads a variable before it is stored fails, and what is left may do without the read.
        if not isinstance(whole[0], type):
            assert outcome_of(less, inputs) == whole, ast.unparse(less)


def what_runs(text: str, **texts: str) -> dict[str, str]:
    tree = without_kernels(with_plain_reads(ast.parse(SETTINGS + text)), texts)
    return live_digests(tree, texts, digests(tree))


RUN = "\n\ndef run(x):\n    y = f(x)\n    return y\n\n\nrun(1)\n"
EQUAL = [  # a function, and others that do the same
    ("    return f(x)", "    y = f(x)\n    return y"),
    ("    return f(x)", "    is_on = args.is_on and x\n    if is_on:\n        return 3\n    return f(x)"),
    ("    return f(x)", '    rate = float(os.environ.get("RATE", "0"))\n    return f(x) if rate <= 0 else rate'),
    ("    return f(x)", "    if args.depth == 1:\n        return f(x)\n    return x"),
    ("    if x:\n        f(x)", "    if x and (args.depth or x > 3):\n        f(x)"),
    ("    return f(x)", "    read = os.environ.get\n    return 2 if int(read('RATE', '0')) else f(x)"),
    ("    return f(x)", "    g = torch.compile(f, dynamic=False) if args.depth else f\n    return g(x)"),
    ("    m = f\n    return m(x)", "    m = torch.compile(f) if x else f\n    return m(x)"),
    ("    return", "    return None"),
    ("    f(x)\n    return x", "    y = f(x)\n    del y\n    gc.collect()\n    return x"),
    ("    o = torch.optim.SGD(x)\n    return f(o)", "    return f(torch.optim.SGD(x, fused=True))"),
    ("    with torch.no_grad():\n        f(x)", "    with torch.inference_mode():\n        f(x)"),
    ("    return f(x)", "    x_size = x.size\n    log0(f'{x_size} values')\n    return f(x)"),
    ("    f(2)\n    return f(x)", "    y = x\n    f(2)\n    return f(y)"),
    (
        "    for i in x:\n        y = f(i)\n        f(y)",
        "    for i in x:\n        y = f(i)\n        z = y\n        f(z)",
    ),
    ("    f(2)\n    return x.f(3)", "    g = x.f\n    f(2)\n    return g(3)"),
    ("    return f(x)", "    seen = []\n    for i in range(3):\n        seen.append(x[i])\n    return f(x)"),
    ("    return f(x)", "    y = 0\n    if isinstance(y, Tensor):\n        f(2)\n    return f(x)"),
    ("    return f(x)", "    seen = {}\n    seen[x] = 2\n    log0(f'{seen}')\n    return f(x)"),
    (
        "    with open(x) as file:\n        return f(file)",
        "    if x.size:\n        raise ValueError('too many')\n    with open(x) as file:\n        return f(file)",
    ),
    (
        "    try:\n        f(x)\n    except OSError:\n        f(2)",
        "    assert x.size\n    try:\n        f(x)\n    except OSError:\n        f(2)",
    ),
]
UNEQUAL = [
    ("    return f(x)", "    rate = x\n    return f(x) if rate <= 0 else rate"),
    ("    return f(x)", "    for rate in x:\n        rate = 0\n    return f(x) if rate <= 0 else rate"),
    (
        "    return f(x)",
        "    rate = 0\n    def set():\n        nonlocal rate\n        rate = f(x)\n    return rate or f(x)",
    ),
    ("    return f(x)", "    g = torch.compile(f) if x else run\n    return g(x)"),
    ("    return f(x)", "    y = {}\n    y[x] = 2\n    if y:\n        return f(3)\n    return f(x)"),
    ("    return f(x) + f(2)", "    y = f(2)\n    return f(x) + y"),
    ("    f(x)\n    return x", "    y = f(x)\n    x += 1\n    return x"),
    ("    return re.compile(x)", "    return x"),
    ("    return f(x)", "    return None"),
    ("    f(2)\n    return f(x)", "    y = x\n    x = f(2)\n    return f(y)"),
    (
        "    for i in x:\n        y = f(i)\n        f(y)",
        "    for i in x:\n        y = f(i)\n        if i:\n            z = y\n        f(z)",
    ),
    ("    f(2)\n    return x.f(3)", "    g = x.f\n    x.f = f(2)\n    return g(3)"),
    ("    f(2)\n    return x.f", "    g = x.f\n    f(2)\n    return g"),
    ("    return f(x)", "    seen = x.seen\n    seen.append(3)\n    return f(x)"),
    ("    return f(x)", "    seen = []\n    seen.append(3)\n    return f(seen)"),
    ("    return f(x)", "    seen = []\n    seen.append(f(2))\n    return f(x)"),
    (
        "    try:\n        f(x)\n    except OSError:\n        f(2)",
        "    try:\n        if x.size:\n            raise OSError(x)\n        f(x)\n    except OSError:\n        f(2)",
    ),
    ("    collect(x)", "    pass"),
    ("    return f(x)", "    y = 0\n    if isinstance(y, int):\n        f(2)\n    return f(x)"),
    ("    return f(x)", "    y = f(2)\n    if isinstance(y, Tensor):\n        f(2)\n    return f(x)"),
]


def changed(body: str) -> str:
    return RUN.replace("    y = f(x)\n    return y", body)


@pytest.mark.parametrize(("body", "other"), EQUAL)
def test_functions_that_do_the_same_are_one(body: str, other: str) -> None:
    assert what_runs(changed(body)).get("run") == what_runs(changed(other)).get("run")


@pytest.mark.parametrize(("body", "other"), UNEQUAL)
def test_functions_that_only_look_alike_are_two(body: str, other: str) -> None:
    assert what_runs(changed(body)).get("run") != what_runs(changed(other)).get("run")


def test_a_variable_counts_behind_a_branch_that_is_off() -> None:
    text = changed(
        "    if args.is_on:\n        f(2)\n    else:\n        f(3)\n    if args.depth:\n        f(4)\n    return f(x)"
    )
    tree = without_kernels(with_plain_reads(ast.parse(SETTINGS + text)), {})
    assert effective(tree, loaded_names(tree, {})) == {"IS_ON", "DEPTH"}
