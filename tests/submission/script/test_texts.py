"""Texts of a script are cut behind what is wrong and what a setting is; short ones stay."""

import ast

import pytest

from golf.submission.script.evaluation import Facts
from golf.submission.script.flat import Flat, Section
from golf.submission.script.fold import fold
from golf.submission.script.readable import _cut, _section
from golf.submission.script.settings import shorten_comment

LONG = "the file {path} holds other tokens than the tokenizer of this data set makes of the same text"


def folded(source: str) -> Flat:
    flat = Flat([Section("m", "", ast.parse(source).body)], {})
    fold(flat, Facts({}, {}))
    return flat


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"f'{LONG}: fetch it again or set data.path'", f"{LONG}."),
        (f"f'{LONG}; {{other}}: fetch it again'", f"{LONG}."),
        ("'short {path}: fetch it again'", "short {path}: fetch it again"),
        (f"f'{LONG} {{a:.2f}}'", f"{LONG} {{a:.2f}}"),  # a format is no colon
        (
            "sentence(path, 'a text that this pass does not see in full', other, third, fourth, fifth, sixth)",
            "see in full'",
        ),
    ],
)
def test_long_errors_end_before_their_advice(text: str, kept: str) -> None:
    (statement,) = folded(f"def f(path):\n    raise ValueError({text}) from None").statements()
    written = ast.unparse(statement)
    assert kept in written and written.endswith(" from None")
    assert ("fetch" in written) == ("fetch" in kept)


def test_a_setting_says_what_it_is_behind_its_value() -> None:
    (setting,) = ast.parse("order: str = 'a'").body
    setting.above, setting.behind = ["# order of the text; a: as it is |", "# b: shuffled"], []  # type: ignore[attr-defined]
    shorten_comment(setting)
    assert setting.above == [] and setting.behind == ["# order of the text"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("one two three", ["one two ", "three"]),
        ("{one two} three  four", ["{one two} ", "three  ", "four"]),
        ("one\\n\\ntwo\\n", ["one\\n", "\\n", "two\\n"]),
        ("a } { b", ["a } { b"]),
    ],
)
def test_long_strings_are_cut_between_words_and_behind_lines(text: str, pieces: list[str]) -> None:
    assert _cut(text, 8) == pieces and "".join(pieces) == text


@pytest.mark.parametrize(("about", "title"), [("", "# a/b.py"), ("First line.\n\nMore.", "# a/b.py: First line.")])
def test_a_section_begins_with_the_first_line_about_its_module(about: str, title: str) -> None:
    assert _section(Section("golf.a.b", about, ast.parse("x = 1").body)).splitlines()[0] == title
