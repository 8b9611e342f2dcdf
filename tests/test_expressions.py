"""Every expression takes time in proportion to a text: no text hangs what reads it, however it repeats itself."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

import golf
from tests.support import ROOT

METHODS = {"match", "fullmatch", "search", "finditer", "findall", "sub", "subn", "split"}
REPEATED = (*'aA_0 \t\n.,:=-/(["\\#|+', "a_", "ab_", "1,", "1.", "a.", "a=1 ", "x:1 ", "a ", "1 ", "\n ", "A=1 ", "- ")
REPEATED += ("1e", "0x", "/*", '"\\', "a/", "1/", "[1")
CHARACTERS = 20_000
# Seconds of CPU for such a text. A square of its length takes several, an exponential never ends.
MOST_SECONDS = 0.25
# Short texts that golf makes itself: names of files and folders, overrides, lines of Slurm and of its own programs.
SHORT: tuple[str, ...] = ("golf.field.submission_json._MEANINGS",)  # keys of at most 200 characters
SHORT += tuple(f"golf.{wing}." for wing in ("run", "settings", "launch", "commands", "training", "artifact"))
SHORT += tuple(f"golf.lab.{room}." for room in ("plan", "sweep", "cluster", "track", "proofs", "artifacts"))
SHORT += ("golf.submission.script.",)


def modules() -> Iterator[Any]:
    for info in pkgutil.walk_packages(golf.__path__, "golf."):
        if not info.name.endswith("__main__") and ".kernels." not in info.name and info.name != "golf.train":
            yield importlib.import_module(info.name)


def patterns(value: Any, depth: int = 0) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth < 4 and isinstance(value, dict | list | tuple | set | frozenset):
        for part in (*value.keys(), *value.values()) if isinstance(value, dict) else value:
            yield from patterns(part, depth + 1)


def uses() -> dict[str, set[str]]:
    """Return the methods that are called on each name in golf: one that only matches begins at one place."""
    found = defaultdict(set)
    for path in (ROOT / "golf").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in METHODS:
                name = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
                found[name].add(node.attr)
    return found


def expressions() -> dict[tuple[str, re.Pattern[str]], set[str]]:
    """Return the methods of every expression by its name and itself, those of tables in YAML among them."""
    used = uses()
    found = {}
    for module in modules():
        for name, value in vars(module).items():
            for pattern in patterns(value):
                if isinstance(pattern.pattern, str) and not name.startswith("__"):
                    found[f"{module.__name__}.{name}", pattern] = used.get(name) or {"match", "fullmatch"}
    return found


def words(pattern: re.Pattern[str]) -> list[str]:
    """Return the words that an expression looks for, since a text that repeats them gets far into it."""
    found: set[str] = set()

    def walk(sequence: Any) -> None:
        word = ""
        for operation, value in sequence:
            if operation is constants.LITERAL:
                word += chr(value)
                continue
            found.add(word)
            word = ""
            if operation in (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT):
                walk(value[2])
            elif operation is constants.SUBPATTERN:
                walk(value[3])
            elif operation is constants.ATOMIC_GROUP:
                walk(value)
            elif operation is constants.BRANCH:
                for branch in value[1]:
                    walk(branch)
            elif operation in (constants.ASSERT, constants.ASSERT_NOT):
                walk(value[1])
        found.add(word)

    walk(parser.parse(pattern.pattern, pattern.flags))
    return sorted(found - {""})


class LateError(Exception):
    """An expression has taken too long."""


def seconds(pattern: re.Pattern[str], methods: set[str], text: str) -> float:
    """Return the seconds of CPU that one pass over a text takes, at most 2."""

    def ring(*_: object) -> None:
        raise LateError

    before = signal.signal(signal.SIGVTALRM, ring)
    start = time.thread_time()
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, 2)
        if methods <= {"match", "fullmatch"}:
            for method in methods:
                getattr(pattern, method)(text)
        else:
            for _ in pattern.finditer(text):
                pass
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except LateError:
        return 2.0
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return time.thread_time() - start


def slow(pattern: re.Pattern[str], methods: set[str], repeated: list[str], beginnings: list[str]) -> str:
    """Return the beginning and the word of the first text that takes too long; empty if none does."""
    for word in repeated:
        for beginning in beginnings:
            # An exponential shows at once, and a text that ends otherwise makes an expression try all ways.
            for size in (30, 1000, CHARACTERS):
                text = beginning + word * (size // len(word)) + "\x01"
                if (taken := seconds(pattern, methods, text)) > MOST_SECONDS:
                    return f"{beginning!r} and {word!r} repeated: {taken:.2f} s for {len(text)} characters"
                if taken < size * 4e-8:
                    break
    return ""


def reads_long_texts(name: str) -> bool:
    return not name.startswith(SHORT) or name.startswith("golf.submission.script")


def test_no_expression_takes_the_square_of_a_text() -> None:
    found = {key: methods for key, methods in expressions().items() if reads_long_texts(key[0])}
    assert len(found) > 90
    faults = {}
    for (name, pattern), methods in found.items():
        if fault := slow(pattern, methods, [*REPEATED[::3], *words(pattern)[:3]], [""]):
            faults[name] = f"{fault}: {pattern.pattern[:80]}"
    assert faults == {}


@pytest.mark.slow
def test_no_expression_takes_the_square_of_a_text_behind_its_own_words() -> None:
    faults = {}
    for (name, pattern), methods in expressions().items():
        own = words(pattern)[:25]
        tried = [*REPEATED, *own, *(f"{word}{end}" for word in own[:12] for end in ("a", "1", " "))]
        if reads_long_texts(name) and (fault := slow(pattern, methods, tried, ["", *own[:3]])):
            faults[name] = f"{fault}: {pattern.pattern[:80]}"
    assert faults == {}


@pytest.mark.parametrize("bad", [r"(\w+_)*warmup", r"\w+=", r"(a+)+$", r"^\s*#", r'"(\\.|[^"])*;', r"//.*?end"])
def test_such_an_expression_is_found(bad: str) -> None:
    pattern = re.compile(bad, re.MULTILINE)
    assert slow(pattern, {"search"}, [*REPEATED, *words(pattern)], [""])
