"""The number of parameters that a script's model has, from its source: against the model that torch builds of it."""

from __future__ import annotations

import ast
import contextlib
import os
import tracemalloc
from pathlib import Path

import pytest
import torch

from golf.field.parameter_count import UncountableError, parameter_count
from golf.field.script_reader import read_script

SHARED = Path(__file__).parents[3] / "shared"

HEAD = """
import copy, math, os
import torch
import torch.nn.functional as F
from torch import Tensor, nn

class Settings:
    layers = int(os.environ.get("LAYERS", 3))
    width = int(os.environ.get("WIDTH", "96"))
    tied = bool(int(os.environ.get("TIED", "1")))
    bias = os.environ.get("BIAS", "0") == "1"
    hidden = int(width * float(os.environ.get("MULT", 2.5)))
    gates = [int(x) for x in os.environ.get("GATES", "0,2").split(",") if x]

class Cast(nn.Linear):
    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype))
"""
MODEL = """
class Block(nn.Module):
    def __init__(self, width, hidden, *, bias=False, gate=None):
        super().__init__()
        self.norm = nn.RMSNorm(width, elementwise_affine=False)
        self.up, self.down = Cast(width, hidden, bias=bias), Cast(hidden, width, bias=bias)
        self.mix = nn.Parameter(torch.stack((torch.ones(width), torch.zeros(width))).float())
        self.gate = nn.Parameter(torch.full((gate,), 1.5)) if gate else None

class Net(nn.Module):
    def __init__(self, args, layers=None):
        super().__init__()
        layers = layers or args.layers
        self.table = nn.Embedding(1024, args.width)
        made = []
        for index in range(layers):
            gate = 2 ** index + 1 if index in args.gates else None
            made.append(Block(args.width, args.hidden, bias=args.bias, gate=gate))
        self.blocks = nn.ModuleList(made)
        self.extra = nn.ParameterList([nn.Parameter(torch.zeros(3, 2 * i + 1)) for i in range(layers // 2)])
        self.maps = nn.ModuleDict({str(i): nn.Identity() for i in range(2)})
        self.head = Cast(args.width, 1024, bias=False)
        if args.tied:
            self.head.weight = self.table.weight
        self.register_buffer("turn", torch.arange(8))
        self._start()

    def _start(self):
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.weight)
"""
MAIN = """
def main():
    args = Settings()
    torch.manual_seed(1)
    device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
    small = Cast(8, 8)
    model = Net(args).to(device).bfloat16()
    for step in range(10**9):
        model(step)

if __name__ == "__main__":
    main()
"""


def counted(source: str, **variables: str) -> int:
    """Return the number that reading gives."""
    return parameter_count(ast.parse(source), variables)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"LAYERS": "7", "GATES": "1,5,6"},
        {"TIED": "0"},
        {"BIAS": "1", "MULT": "3.3", "WIDTH": "160"},
        {"GATES": "", "TIED": "0", "LAYERS": "1"},
    ],
)
def test_it_is_the_number_that_torch_has(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name in ("LAYERS", "WIDTH", "TIED", "BIAS", "MULT", "GATES"):
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    names: dict[str, object] = {"__name__": "a_test"}
    exec(HEAD + MODEL, names)  # the test's own text
    built = names["Net"](names["Settings"]())  # type: ignore[operator]
    own = sum(parameter.numel() for parameter in built.parameters())

    assert counted(HEAD + MODEL + MAIN, **variables) == own


@pytest.mark.parametrize("parent", ["super({}, self)", "super(__class__, self)", "nn.Module"])
def test_a_parent_starts_in_whatever_words(parent: str) -> None:
    own = MODEL
    for name in ("Block", "Net"):
        given = "self" if parent == "nn.Module" else ""
        own = own.replace("super().__init__()", f"{parent.format(name)}.__init__({given})", 1)
    assert "super()" not in own
    assert counted(HEAD + own + MAIN) == counted(HEAD + MODEL + MAIN)


def test_a_module_that_never_starts_its_parent_is_not_counted() -> None:
    with pytest.raises(UncountableError):
        counted(HEAD + MODEL.replace("super().__init__()", "pass") + MAIN)


def test_a_model_that_depends_on_something_unknown_is_not_counted() -> None:
    # The number of layers is in a file.
    unknown = MAIN.replace("Net(args)", "Net(args, len(open('layers').read()))")
    with pytest.raises(UncountableError):
        counted(HEAD + MODEL + unknown)


def test_a_script_without_a_model_is_not_counted() -> None:
    with pytest.raises(UncountableError, match="no place"):
        counted("import torch\nprint(1)\n")


def test_settings_that_a_script_refuses_are_not_counted() -> None:
    refusing = MODEL.replace(
        "        made = []", "        if args.width % 7:\n            raise ValueError(args.width)\n        made = []"
    )
    with pytest.raises(UncountableError, match="refuses"):
        counted(HEAD + refusing + MAIN)


@pytest.mark.parametrize(
    "line",
    [
        "open({path!r}, 'w').write('x')",
        "os.system('touch ' + {path!r})",
        "__import__('pathlib').Path({path!r}).touch()",
        "().__class__.__base__.__subclasses__()",
        "Cast.__init__.__globals__['os'].system('touch ' + {path!r})",
        "torch.save(torch.zeros(2), {path!r})",
        "torch.zeros(2).numpy().tofile({path!r})",
        'eval("open(" + repr({path!r}) + ", \'w\')")',
        "getattr(nn.Module, '__init__').__globals__['os'].mkdir({path!r})",
        "nn.Module.__call__.__globals__['torch'].save(1, {path!r})",
    ],
)
def test_nothing_is_run(line: str, tmp_path: Path) -> None:
    path = tmp_path / "mark"
    text = (
        HEAD
        + MODEL
        + line.format(path=str(path))
        + "\n"
        + MAIN.replace("small =", f"{line.format(path=str(path))}; small =")
    )

    assert counted(text) > 0
    assert not path.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "a = 10 ** 10 ** 10",
        "a = [0] * 10 ** 12",
        "a = 'x' * 10 ** 12",
        "a = '%1000000000d' % 1",
        "a = sum(range(10 ** 12))",
        "a = [1]\nfor i in range(100):\n    a = [a, a]\nb = a == [a]\nc = str(a)\nd = sorted([a, a])",
        "a = 'x'\nfor i in range(100):\n    a = a + a",
        "a = 3\nfor i in range(4000):\n    a = a * a",
        "a = [1]\nfor i in range(100):\n    a.extend(a)",
        "a = torch.zeros(10 ** 15)",
        "f = lambda n: f(n)\nf(1)",
        "b = [[i for i in range(4000)] for j in range(4000)]",
        "a = {}\nfor i in range(100):\n    a = {1: a, 2: a}\nb = {1: a} == {1: a}",
    ],
)
def test_no_script_takes_long_or_much_memory(line: str) -> None:
    tracemalloc.start()
    try:
        # Without limits, each of these takes hours or all memory.
        with contextlib.suppress(UncountableError):
            counted(HEAD + MODEL + line + MAIN)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < 200 << 20


# What the model of each has: their logs, or the reviewer of these scripts.
PUBLIC = {
    "pr59": 17_059_912,
    "pr236": 17_650_249,
    "pr487": 17_059_912,
    "pr1206": 9_988_112,
    "pr1509": 33_234_472,
    "pr2053": 17_059_912,
}


@pytest.mark.skipif(not (SHARED / "scripts").is_dir(), reason="needs ../shared/scripts beside this checkout")
@pytest.mark.parametrize("number", PUBLIC)
def test_public_scripts_have_the_numbers_of_their_logs(number: str) -> None:
    [path] = (SHARED / "scripts").glob(f"{number}_*.py")
    tree = read_script(path).tree

    assert tree is not None
    assert parameter_count(tree, {}) == PUBLIC[number]
    assert torch.get_default_device().type == "cpu"


def test_a_table_on_the_device_is_followed_without_one() -> None:
    table = 'table = torch.arange(4, device="cuda").sum()\n'
    assert counted(HEAD + table + MODEL + MAIN) == counted(HEAD + MODEL + MAIN)
