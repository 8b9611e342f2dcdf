"""What a fixed configuration decides is cut, and nothing else. Programs are run before and after."""

import ast
from dataclasses import dataclass, field
from typing import Any

import pytest

from golf.artifact.script.compact import inline_settings, pass_by_position
from golf.artifact.script.facts import Facts
from golf.artifact.script.flat import Flat, Section
from golf.artifact.script.fold import fold
from golf.artifact.script.shake import shake

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
    values = {("model", "layers"): 3, ("model", "skips"): False, ("model", "kind"): "plain", ("steps",): 5}
    return Facts({"Config": (), "ModelConfig": ("model",)}, {**values, ("seed",): 1}, open={("seed",)})


def flat_of(source: str, classes: str = CLASSES) -> Flat:
    whole = classes + source + "\nif __name__ == '__main__':\n    RESULTS.append(main())"
    return Flat([Section("m", "", ast.parse(whole).body)], {})


def text_of(flat: Flat) -> str:
    return "\n".join(ast.unparse(ast.fix_missing_locations(node)) for node in flat.statements())


def run(flat: Flat) -> object:
    results: list[object] = []
    names: dict = {"dataclass": dataclass, "field": field, "__name__": "__main__", "RESULTS": results}
    exec(compile(text_of(flat), "m", "exec"), names)
    return results[0]


def cut(source: str, classes: str = CLASSES, known: Facts | None = None) -> str:
    """The program after folding and shaking, and proof that both forms of it do what the whole one does."""
    before, known = run(flat_of(source, classes)), known or facts()
    flat = flat_of(source, classes)
    fold(flat, known)
    shake(flat, {"Config"})
    assert run(flat) == before
    text = text_of(flat)
    inline_settings(flat, known)
    shake(flat, {"Config"})
    pass_by_position(flat)
    assert run(flat) == before
    return text


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


def test_settings_are_followed_through_names_arguments_and_attributes() -> None:
    text = cut(
        "def other(): return 2\n"
        "class Model:\n    def __init__(self, cfg: ModelConfig):\n        self.cfg = cfg\n"
        "    def call(self): return other() if self.cfg.skips else 1\n"
        "def compress(data, kind, level=9):\n    if kind == 'other': return other()\n    return data * level\n"
        "def use(cfg: Config):\n    m = cfg.model\n    return Model(m).call() + compress(2, m.kind)\n"
        "def main(): return use(Config())"
    )
    assert "other" not in text.replace("'other'", "") and "kind ==" not in text


def test_a_list_that_is_filled_later_is_not_empty() -> None:
    cut(
        "def use(cfg: Config):\n    stored = []\n    for i in range(cfg.model.layers):\n        stored.append(i)\n"
        "    if stored:\n        return stored\n    return None\n"
        "def main(): return use(Config())"
    )


def test_an_attribute_is_only_taken_for_fixed_if_nobody_changes_it() -> None:
    source = (
        "class Model:\n    def __init__(self):\n        self.hooks = []\n        self.on = False\n"
        "    def call(self):\n        x = 1\n        for hook in self.hooks:\n            x = hook(x)\n"
        "        return -x if self.on else x\n"
        "def main():\n    model = Model()\n{}    return model.call()"
    )
    assert "for hook" not in cut(source.format("")) and "-x" not in cut(source.format(""))
    assert "for hook" in cut(source.format("    model.hooks.append(lambda x: x + 5)\n"))
    assert "-x" in cut(source.format("    model.on = True\n"))


def test_a_function_that_is_passed_on_keeps_its_parameters() -> None:
    text = cut("def f(a, b=1): return a\ndef main(): return list(map(f, [1, 2]))")
    assert "def f(a, b=1)" in text
    assert "def f(a)" in cut("def f(a, b=1): return abs(a)\ndef main(): return f(2, b=3)")


def test_a_parameter_of_the_same_name_as_a_function_is_not_that_function() -> None:
    cut(
        "def f(a, mode): return a if mode == 'x' else -a\n"
        "def g(f): return f(1, 'y')\n"
        "def main(): return f(2, 'x') + g(lambda a, m: a)"
    )


def test_defaults_in_the_middle_survive_passing_by_position() -> None:
    cut(
        "def f(a, *, b=2, c, d=4): return (a, b, c, d)\n"
        "def main(): return [f(1, c=3), f(1, c=5, d=6), f(c=1, a=2, b=3)]"
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
    values: dict[tuple[str, ...], Any] = {
        ("a", "kind"): "x",
        ("b", "kind"): "x",
        ("Part", "kind"): "x",
        ("a", "size"): 1,
        ("b", "size"): 2,
    }
    known = Facts({"Config": (), "Part": ("Part",)}, values, shared={("a",), ("b",)})
    text = cut(
        "def third(): return 3\ndef fourth(): return 4\n"
        "def use(part: Part): return third() if part.kind == 'y' else 10 if part.size == 1 else 20\n"
        "def direct(cfg: Config): return 1 if cfg.b.size == 2 else fourth()\n"
        "def main():\n    cfg = Config()\n    return use(cfg.a), use(cfg.b), direct(cfg)",
        classes,
        known,
    )
    assert "third" not in text and "fourth" not in text and "part.size == 1" in text
