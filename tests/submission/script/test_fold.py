"""What a fixed configuration decides is cut, and nothing else. Programs are run before and after."""

import ast
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pytest

from golf.errors import GolfError
from golf.submission.script.bundle import refuse_leftovers
from golf.submission.script.evaluation import UNKNOWN, Facts
from golf.submission.script.flat import Flat, Section
from golf.submission.script.fold import fold
from golf.submission.script.shake import shake

CLASSES = """
@dataclass
class ModelConfig:
    layers: int = 3
    skips: bool = False
    kind: str = "plain"
@dataclass
class Config:
    model: ModelConfig = field(default_factory=ModelConfig)
    steps: int = 5
    seed: int = 1
"""


def facts() -> Facts:
    model: dict[str, list[Any]] = {"layers": [3], "skips": [False], "kind": ["plain"]}
    values: dict[tuple[str, ...], list[Any]] = {("model", name): value for name, value in model.items()}
    return Facts({"Config": (), "ModelConfig": ("model",)}, {**values, ("steps",): [5], ("seed",): [UNKNOWN]})


def flat_of(source: str, classes: str = CLASSES) -> Flat:
    whole = classes + source + "\nif __name__ == '__main__':\n    RESULTS.append(main())"
    return Flat([Section("m", "", ast.parse(whole).body)], {})


def text_of(flat: Flat) -> str:
    return "\n".join(ast.unparse(ast.fix_missing_locations(node)) for node in flat.statements())


def run(flat: Flat) -> object:
    results: list[object] = []
    names: dict = {
        "dataclass": dataclass,
        "field": field,
        "replace": replace,
        "NamedTuple": NamedTuple,
        "__name__": "__main__",
        "RESULTS": results,
    }
    exec(compile(text_of(flat), "m", "exec"), names)
    return results[0]


def cut(source: str, classes: str = CLASSES, known: Facts | None = None, passes: int = 1) -> str:
    """Return the program after folding and shaking; assert that it does what the whole one does."""
    before, known = run(flat_of(source, classes)), known or facts()
    flat = flat_of(source, classes)
    for _ in range(passes):
        fold(flat, known)
        shake(flat, {"Config"})
        assert run(flat) == before
    return text_of(flat)


def test_a_branch_on_a_setting_goes_with_what_only_it_needs() -> None:
    source = (
        "def with_skips(x): return -x\n"
        "def make(){}: return Config()\n"
        "def main():\n    cfg, x = make(), 1\n    if cfg.model.skips and x:\n        x = with_skips(x)\n    return x"
    )
    assert "with_skips" in cut(source.format(""))  # nothing says what kind of thing `cfg` is
    assert "with_skips" not in cut(source.format(" -> Config"))


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("cfg.model.kind == 'plain'", "yes"),
        ("cfg.model.kind in ('other', 'third')", "no"),
        ("not cfg.model.skips", "yes"),
        ("cfg.model.layers > 2 and cfg.steps == 5", "yes"),
        ("cfg.model.layers > 3 or cfg.model.skips", "no"),
        ("cfg.seed == 1", "both"),
        ("cfg.seed == 1 and cfg.model.skips", "no"),
        ("len(str(cfg.steps)) == 1", "both"),
    ],
)
def test_conditions(condition: str, kept: str) -> None:
    text = cut(
        "def yes(): return abs(-1)\ndef no(): return abs(-2)\n"
        f"def choose(cfg: Config):\n    if {condition}:\n        return yes()\n    return no()\n"
        "def main(): return choose(Config())"
    )
    assert ("yes()" in text, "no()" in text) == (kept in ("yes", "both"), kept in ("no", "both"))


def test_settings_are_followed_through_locals_and_attributes() -> None:
    text = cut(
        "def other(): return abs(-2)\n"
        "class Model:\n    def __init__(self, cfg: ModelConfig):\n        self.cfg = cfg\n"
        "    def call(self): return other() if self.cfg.skips else 1\n"
        "def use(cfg: Config):\n    m = cfg.model\n    kind, many = m.kind, m.layers > 5\n"
        "    return Model(m).call() + (1 if kind == 'plain' and not many else other())\n"
        "def main(): return use(Config())"
    )
    assert "other" not in text and "kind ==" not in text


def test_a_function_that_only_tells_a_setting_is_followed() -> None:
    text = cut(
        "def other(): return abs(-2)\n"
        "def is_skipping(model: ModelConfig):\n    'Tell it.'\n    return model.skips or model.layers == 1\n"
        "def use(cfg: Config): return other() if is_skipping(cfg.model) else 1\n"
        "def main(): return use(Config())"
    )
    assert "other" not in text and "is_skipping" not in text


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        ("0 < cfg.model.layers < size", None),
        ("size < cfg.model.layers", None),
        ("size > 0 and not cfg.model.skips", None),
        ("not cfg.model.skips", True),
        ("-cfg.model.layers", None),
    ],
)
def test_what_settings_alone_decide_is_written_as_a_truth_value(condition: str, value: bool | None) -> None:
    source = f"def use(cfg: Config, size):\n    size += 0\n    return {condition}\n"
    source += "def main(): return [use(Config(), n) for n in range(9)]"
    assert (f"return {value}" in cut(source)) == (value is not None)


@pytest.mark.parametrize("names", ["{}", "{'a': 1}"])
def test_a_loop_over_a_setting_that_is_an_empty_dict_goes(names: str) -> None:
    known = facts()
    known.values["names",] = [ast.literal_eval(names)]
    text = cut(
        "def use(cfg: Config):\n    found = [n for n in (1, 2) if cfg.model.layers > 2]\n"
        "    for name, n in cfg.names.items():\n        found.append(abs(n))\n    return found\n"
        f"def main():\n    cfg = Config()\n    cfg.names = {names}\n    return use(cfg)",
        known=known,
    )
    assert ("abs" in text) and "cfg.model.layers" not in text  # the program sets it: it may be any dict
    assert ("abs" in cut_without_change(names)) == (names != "{}")


def cut_without_change(names: str) -> str:
    known = facts()
    known.values["names",] = [ast.literal_eval(names)]
    classes = CLASSES + f"    names: dict = field(default_factory=lambda: {names})\n"
    return cut(
        "def use(cfg: Config):\n    return [abs(n) for n in (1, 2)] if cfg.names.items() else 0\n"
        "def main(): return use(Config())",
        classes,
        known,
    )


def test_a_name_with_two_values_is_not_known() -> None:
    text = cut(
        "def use(cfg: Config):\n    m = cfg.steps\n    for m in (1, 2):\n        pass\n"
        "    inner = lambda cfg: 1 if cfg else 2\n    return 3 if m == 5 else inner(cfg.model)\n"
        "def main(): return use(Config())"
    )
    assert "m == 5" in text and "if cfg else" in text


def test_an_argument_is_not_followed() -> None:
    assert "def other" in cut(
        "def other(): return abs(-2)\ndef f(on): return other() if on else 1\n"
        "def use(cfg: Config): return f(cfg.model.skips)\ndef main(): return use(Config())"
    )


def test_a_local_that_says_nothing_is_written_as_what_it_is() -> None:
    text = cut(
        "def use(cfg: Config, size):\n"
        "    skip, names, many = None, (), [size]\n"
        "    rows: int = 1\n"
        "    def inner(x):\n        return x if skip is None else skip\n"
        "    return [inner(size), names, many, f'{rows}:{skip}:{size:3}:{skip!r:>5}']\n"
        "def main(): return use(Config(), 7)"
    )
    assert (
        "many = [size]" in text
        and "skip" not in text
        and "rows" not in text
        and "if" not in text.split("main")[0][-150:]
    )
    assert "f'{1}:{None}:{size:3}:{None!r:>5}'" in text and "return [inner(size), ()," in text


def test_locals_without_a_reader_go_if_nothing_happens_by_them() -> None:
    text = cut(
        "class Point(NamedTuple):\n    x: int\n"
        "def use(size):\n"
        "    a = size\n    b = SEEN.append(size)\n    c = Point(size)\n    total = 3\n    total += size\n"
        "    if size:\n        d = (size, size)\n"
        "    class Kind:\n        step = 5\n"
        "    def inner():\n        nonlocal total\n        total = size\n"
        "    inner()\n    return [Kind.step, total]\n"
        "SEEN = []\n"
        "def main(): return use(7), SEEN"
    )
    assert "a = size" not in text and "d = " not in text and "Point" not in text
    assert "b = SEEN.append(size)" in text and "total = 3" in text and "step = 5" in text


def test_whether_any_is_there_is_known_where_none_can_be() -> None:
    assert "return False" in cut(
        "def use(cfg: Config, sizes):\n    return any(cfg.model.skips for size in sizes)\n"
        "def main(): return use(Config(), (1, 2))"
    )
    assert "any(" in cut(
        "def use(cfg: Config, sizes):\n    return any(size > 1 for size in sizes)\n"
        "def main(): return use(Config(), (1, 2))"
    )


def test_a_list_that_is_filled_later_is_not_empty() -> None:
    cut(
        "def use(cfg: Config):\n    stored = []\n    for i in range(cfg.model.layers):\n        stored.append(i)\n"
        "    if stored:\n        return stored\n    return None\n"
        "def main(): return use(Config())"
    )


def test_several_groups_of_one_class_are_known_where_they_agree() -> None:
    classes = """
@dataclass
class Part:
    kind: str = "x"
    size: int = 1
@dataclass
class Config:
    a: Part = field(default_factory=Part)
    b: Part = field(default_factory=lambda: Part(size=2))
"""
    values: dict[tuple[str, ...], list[Any]] = {
        ("a", "kind"): ["x"],
        ("b", "kind"): ["x"],
        ("Part", "kind"): ["x", "x"],
        ("a", "size"): [1],
        ("b", "size"): [2],
        ("Part", "size"): [1, 2],
    }
    known = Facts({"Config": (), "Part": ("Part",)}, values)
    text = cut(
        "def third(): return abs(3)\ndef fourth(): return abs(4)\n"
        "def use(part: Part):\n    if part.size > 2 or part.size not in (1, 2): return fourth()\n"
        "    return third() if part.kind == 'y' else 10 if part.size == 1 else 20\n"
        "def direct(cfg: Config): return 1 if cfg.b.size == 2 else fourth()\n"
        "def main():\n    cfg = Config()\n    return use(cfg.a), use(cfg.b), direct(cfg)",
        classes,
        known,
    )
    assert "third" not in text and "fourth" not in text and "part.size == 1" in text


def test_a_setting_that_the_program_changes_has_one_of_the_values_that_it_gives() -> None:
    source = (
        "def flash(): return abs(-2)\ndef math(): return abs(-3)\n"
        "def use(model: ModelConfig):\n    kind = model.kind\n    if kind in ('fa2', 'fa3'):\n        return flash()\n"
        "    return math() if kind != 'sdpa' else 4\n"
        "def main():\n    cfg = Config()\n    cfg.model.kind = {}\n    return use(cfg.model)"
    )
    fixed = cut(source.format("'sdpa'"))
    assert "flash" not in fixed and "math()" in fixed
    assert "flash()" in cut(source.format("'fa3'"))
    # A value that is computed can be any.
    assert "flash()" in cut(source.format("str(len('ab'))"))


MODEL = (
    "def in_order(hooks): return [hook for phase in hooks.values() for hook in phase]\n"
    "class Model:\n    def __init__(self):\n        self.hooks: list = []\n        self.calls = list()\n"
    "        self.phases: dict = {'add': [], 'mix': []}\n"
    "    def call(self, x):\n        for hook in self.hooks:\n            x = hook(x)\n"
    "        for hook in in_order(self.phases):\n            x = hook(x)\n"
    "        return -x if bool(self.hooks) else x\n"
)


@pytest.mark.parametrize(
    "edit",
    [
        *("", "model.hooks.append(abs)", "model.hooks = [abs]", "getattr(model, 'hooks').append(abs)"),
        *("model.phases['add'].append(abs)", "use([*model.hooks, abs])", "same = model.hooks; same.append(abs)"),
        *("add(model.hooks)", "model.phases.setdefault('add', []).append(abs)", "(model.hooks and []).append(abs)"),
        *("for all in model.phases.values(): all.append(abs)", "[all.append(abs) for _, all in model.phases.items()]"),
    ],
)
def test_a_list_that_nothing_fills_is_cut_with_what_reads_it(edit: str) -> None:
    """`cut` runs the program before and after, so an edit that was overlooked gives another result."""
    others = "def add(to): to.append(abs)\ndef use(all): return len(all)\n"
    text = cut(MODEL + others + f"def main():\n    model = Model()\n    {edit}\n    return model.call(-1)")
    assert ("hook" in text) == bool(edit) and "self.calls = list()" in text


@pytest.mark.parametrize(
    ("change", "is_cut"),
    [
        *(("", True), ("switches.on = ('a',)", False), ("switches.__dict__['on'] = ('a',)", False)),
        *(("setattr(switches, 'on', ('a',))", False), ("switches.names += ('a',)", False)),
    ],
)
def test_an_attribute_that_is_set_twice_to_nothing_is_nothing(change: str, is_cut: bool) -> None:
    text = cut(
        "class Switches:\n    def __init__(self):\n        self.names = tuple(n for n in ())\n"
        "        self.on = self.at(0)\n"
        "    def at(self, step): return tuple(n for n in self.names if step)\n"
        "    def advance(self, step):\n"
        "        self.on = tuple(n for n in self.names if n in {*self.on, *self.at(step)})\n"
        "        return self.on\n"
        f"def main():\n    switches = Switches()\n    {change or 'pass'}\n    active = switches.advance(1)\n"
        "    return abs(-1) if active else switches.on",
        passes=4,
    )
    assert ("abs" not in text) == is_cut


@pytest.mark.parametrize(
    ("calls", "is_cut"),
    [
        *(("train(1)", True), ("[train(1), train(x=2)]", True), ("[train(1, None), train(1, listener=None)]", True)),
        ("[train(1, None), train(1, abs)]", False),
        *(("train(1, abs)", False), ("[train(1), train(1, listener=abs)]", False), ("train(*(1, abs))", False)),
        *(("train(1, **{'listener': abs})", False), ("(lambda f: f(1, abs))(train)", False)),
        ("dict(train=train)['train'](1, abs)", False),
    ],
)
def test_a_parameter_that_no_call_gives_is_its_default(calls: str, is_cut: bool) -> None:
    text = cut(
        "def train(x, listener=None):\n    if listener is not None:\n        x = listener(-x) + 1\n    return x\n"
        f"def main(): return {calls}"
    )
    assert ("x + 1" not in text and "+ 1" not in text) == is_cut


@pytest.mark.parametrize(
    "call", ["A.m(A(), 1, abs)", "A.m(A(), None, abs)", "(A.m(A(), None, abs), A.m(A(), None, None))", "A().m(1, abs)"]
)
def test_a_call_by_the_class_gives_the_object_first(call: str) -> None:
    kind = "class A:\n    def m(self, x, y=None): return x if y is None else y(-2)\n"
    assert "y is None" in cut(f"{kind}def main(): return {call}")


def test_python_calls_some_methods_by_no_name() -> None:
    kind = "class A:\n    def __call__(self, x, y=None): return x if y is None else y(-2)\n"
    assert "y is None" in cut(f"{kind}def main(): return A()(1, abs)")


def test_a_parameter_that_is_set_again_and_that_of_two_methods_are_not_known() -> None:
    again = "def f(x, y=None):\n    y = y or abs(x)\n    return x if y is None else y\ndef main(): return f(-1)"
    assert "y is None" in cut(again)
    two = (
        "class A:\n    def m(self, y=None): return 1 if y is None else 2\n"
        "class B(A):\n    def m(self, y=None): return 3 if y is None else 4\n"
        "def main(): return [A().m(), B().m(5)]"
    )
    assert "3 if y is None" in cut(two)


def test_what_an_export_answers_cuts_what_it_guards() -> None:
    source = (
        "def techniques(cfg): return cfg.tech\ndef edit(x): return x\n"
        "def use(cfg: Config):\n    for technique in techniques(cfg):\n        edit(technique)\n    return 2\n"
        "def main():\n    cfg = Config()\n    cfg.tech = ()\n    return use(cfg)"
    )
    known = facts()
    known.results = {"techniques": ()}
    assert not any(word in cut(source, known=known) for word in ("edit", "technique"))
    assert "edit(technique)" in cut(source)


def test_a_class_that_only_annotations_name_is_dropped() -> None:
    text = cut(
        "class Folder:\n    pass\nclass Seen:\n    pass\nKinds = tuple[int, int]\n"
        "def use(seen: Seen, sizes: Kinds, folder: Folder | None = None) -> Folder | None:\n"
        "    return folder.path if folder else len(sizes)\n"
        "def main(): return use(Seen(), (1, 2))"
    )
    assert "Folder" not in text and "seen: Seen, sizes: Kinds, folder=None" in text


@pytest.mark.parametrize("body", ["return ModelConfig(layers=2).layers", "from golf.settings import hardware"])
def test_what_cannot_be_followed_is_refused(body: str) -> None:
    flat = flat_of(f"def main():\n    {body}")
    with pytest.raises(GolfError, match="cannot follow"):
        refuse_leftovers(flat, {"Config", "ModelConfig"})


def test_a_text_behind_an_unknown_operand_is_not_taken_for_true() -> None:
    source = """
def chosen(cfg: Config):
    return cfg.seed or cfg.model.kind
def main():
    return chosen(Config()) == "plain", chosen(Config()) == 1
"""
    assert "cfg.seed or cfg.model.kind" in cut(source)


def test_what_attributes_always_hold_is_known() -> None:
    source = """
class Tensor:
    own = None
def main():
    tensor = Tensor()
    return 1 if tensor.own is None else tensor.own.missing()
"""
    known = facts()
    known.held["own"] = None
    assert "missing" not in cut(source, known=known)


def test_a_slot_that_always_holds_nothing_decides_branches() -> None:
    slot = "class Model:\n    def __init__(self):\n        self.head, self.first = None, 5\n"
    use = "    def call(self): return self.first if self.head is None else self.head.weight\n"
    assert "head is None" not in cut(f"{slot}{use}def main(): return Model().call()")
    for fill in ("self.head = Model()", "setattr(self, 'head', Model())"):
        main = "def main(): return Model().call(), [m.fill() for m in (Model(),)]"
        assert "self.head is None" in cut(f"{slot}{use}    def fill(self): {fill}\n{main}")
    # A list may be filled later.
    filled = "class Model:\n    def __init__(self):\n        self.hooks = []\n"
    assert "self.hooks.append(3)" in cut(
        f"{filled}    def call(self):\n        self.hooks.append(3)\n        return self.hooks\n"
        "def main(): return Model().call()"
    )
    # A field of another class has the name, too.
    other = "@dataclass\nclass Other:\n    head: int = 3\n"
    assert "self.head is None" in cut(f"{slot}{use}{other}def main(): return Model().call(), Other().head")


def test_a_sum_over_choices_that_were_not_made_is_zero() -> None:
    classes = "@dataclass\nclass Config:\n    layout: list = field(default_factory=list)\n"
    source = (
        "BITS = {'a': 1, 'b': 2}\n"
        "def bits(cfg: Config): return sum(bit for name, bit in BITS.items() if name in cfg.layout)\n"
        "def main(): return bits(Config())"
    )
    assert "BITS" not in cut(source, classes, Facts({"Config": ()}, {("layout",): [()]}))
    assert "BITS" in cut(source, classes, Facts({"Config": ()}, {("layout",): [("a",)]}))
