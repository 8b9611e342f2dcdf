"""Parameters that a configuration does not need go, and programs give the same results as before."""

import pytest

from golf.artifact.script.arguments import drop_arguments
from tests.artifact.script.test_fold import flat_of, run, text_of


def without_arguments(source: str) -> str:
    """Return the program without parameters that it does not need; assert that it gives what the whole one gives."""
    before, flat = run(flat_of(source, "")), flat_of(source, "")
    while drop_arguments(flat, set()):
        pass
    assert run(flat) == before
    return text_of(flat)


@pytest.mark.parametrize(
    ("function", "calls", "left"),
    [
        ("def f(x, on=False):\n    return x if on else -x", "f(1), f(2)", "def f(x):\n    return x if False else -x"),
        ("def f(x, on):\n    return [x, on]", "f(2, None), f(3, on=None)", "def f(x):\n    return [x, None]"),
        ("def f(on, x=1, *, y=2):\n    return x + y", "f(7), f(8, y=4)", "def f(*, y=2):\n    return 1 + y"),
        ("def f(x, unread):\n    return x", "f(1, abs), f(2, len)", "def f(x):\n    return x"),
        ("def g(on): return 3 if on else 4\ndef f(on):\n    return g(on)", "f(True)", "def g():\n    return 3 if True"),
        ("def f(x, *, on):\n    return lambda y: (x, y, on)", "f(5, on=1)(6)", "(x, y, 1)"),
    ],
)
def test_what_every_call_gives_alike_or_nothing_reads_goes(function: str, calls: str, left: str) -> None:
    assert left in without_arguments(f"{function}\ndef main():\n    return {calls}")


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        ("def f(x, on=False): return x if on else -x", "f(1), f(2, True)"),
        ("def f(x, on=False): return x if on else -x", "list(map(f, (1, 2))), f(3)"),  # used as a value
        ("def f(x, on=False): return x if on else -x", "f(*(1, False))"),
        ("def f(x, on=False): return x if on else -x", "f(1, **{'on': True})"),
        ("def f(x, unread): return x", "f(7, [].append(1))"),  # giving it may do something
        ("def f(x, on=False):\n    on = on or x\n    return on", "f(7)"),  # it becomes something else
        ("def f(x, on=0): return [x for on in (1, 2)]", "f(7)"),
        ("def f(x, many=2): return x * many", "f(1), f(2)"),  # a number that its name explains
        ("def f(x, *more): return x", "f(1), f(2)"),
    ],
)
def test_what_some_call_gives_or_that_cannot_be_told_stays(function: str, calls: str) -> None:
    source = f"{function}\ndef main():\n    return {calls}"
    assert without_arguments(source) == text_of(flat_of(source, ""))


def test_a_function_that_is_called_nowhere_is_left_alone() -> None:
    source = "def f(x, on=False): return x if on else -x\ndef main(): return 1"
    assert without_arguments(source) == text_of(flat_of(source, ""))


METHODS = """
class A:
    def __init__(self, size, on=False):
        self.size, self.on = size, on
    def scaled(self, by, up=True):
        return self.size * by if up else self.size
    def update(self, other, unread=0):
        return {{0}}
def main():
    a, names = A(2), {{}}
    names.update({{1: 2}})
    return [a.scaled(3), A(4).scaled(5), a.update(1), names, a.on{}]
"""


def test_methods_and_constructors_lose_theirs() -> None:
    text = without_arguments(METHODS.format(""))
    assert "def __init__(self, size):\n        self.size, self.on = (size, False)" in text
    assert "def scaled(self, by):\n        return self.size * by if True" in text


def test_a_method_whose_name_others_have_too_stays() -> None:
    text = without_arguments(METHODS.format(", getattr(a, 'scaled')(6)"))
    # A dict has an `update`, and `scaled` is got by its name.
    assert "def update(self, other, unread=0)" in text and "def scaled(self, by, up=True)" in text
    overridden = (
        "class A:\n    def scaled(self, by, up=True): return by if up else 0\n"
        "class B(A):\n    def scaled(self, by, up=True): return up\n"
        "def main(): return A().scaled(2), B().scaled(3)"
    )
    assert without_arguments(overridden).count("def scaled(self, by, up=True)") == 2


POINT = (
    "from typing import ClassVar\n@dataclass\nclass Point:\n    unit: ClassVar[int] = 4\n    x: int\n    y: int = 0\n"
)


def test_fields_that_nothing_reads_go_with_what_calls_give_them() -> None:
    text = without_arguments(f"{POINT}def main():\n    p = Point(3, 5)\n    return [p.x, Point(4, y=5).x]")
    assert "y: int" not in text and "Point(3)" in text and "Point(4)" in text and "unit: ClassVar" in text
    # Naming a type makes no object of it.
    text = without_arguments(f"{POINT}MANY = dict[str, Point]\ndef main():\n    p: Point = Point(3, 5)\n    return p.x")
    assert "y: int" not in text


@pytest.mark.parametrize(
    "rest",
    [
        "def main(): return Point(3, 5).x + Point(1, 2).y",
        "def main(): return getattr(Point(3, 5), 'y') + Point(3, 5).x",
        "def main(): return Point(3, 5).x + len({str(Point(3, y)): y for y in (1, 2)})",
        "def main(): return Point(3, 5) == Point(3, 6), Point(3, 5).x",
        "@dataclass\nclass Far(Point):\n    z: int = 0\ndef main(): return Far(1).x, Far(2).x, Far(3).y",
        "def main(): return [p.x for p in map(Point, (3, 4))]",  # made by a call that cannot be seen
        "class Far(Point):\n    pass\ndef main(): return Far(1, 2).x + Point(3, 5).x",
        "def main(): return Point(3, [].append(1)).x",  # giving it may do something
        "def main(): return Point(*(3, 5)).x",
        "def main(): return (vars(Point(3, 5)), Point(3, 5).x)",
    ],
)
def test_fields_that_something_may_read_stay(rest: str) -> None:
    assert "y: int" in without_arguments(POINT + rest)


def test_fields_of_settings_stay_for_the_header_of_an_artifact() -> None:
    flat = flat_of(f"{POINT}def main(): return Point(3, 5).x", "")
    assert not drop_arguments(flat, {"Point"}) and "y: int" in text_of(flat)


def test_defaults_that_every_call_overrides_go() -> None:
    text = without_arguments(
        "def f(x, y=2, *, z=3):\n    return x, y, z\ndef main():\n    return f(1, 5, z=6), f(2, 7, z=8)"
    )
    assert "def f(x, y, *, z)" in text
    text = without_arguments(
        "def f(x, y=2, *, z=3):\n    return x, y, z\ndef main():\n    return f(1, 5, z=6), f(2, z=8)"
    )
    assert "def f(x, y=2, *, z=3)" in text
