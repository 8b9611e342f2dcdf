"""Texts of a script are cut behind what is wrong and what a setting is; short ones stay."""

import ast

import pytest

from golf.submission.script.flat import Flat, Section
from golf.submission.script.readable import _section
from golf.submission.script.texts import shorten_texts

LONG = "the file {path} holds other tokens than the tokenizer of this data set makes of the same text"


def shortened(source: str, settings: set[str] | None = None) -> Flat:
    flat = Flat([Section("m", "", ast.parse(source).body)], {})
    shorten_texts(flat, settings or set())
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
    (statement,) = shortened(f"def f(path):\n    raise ValueError({text}) from None").statements()
    written = ast.unparse(statement)
    assert kept in written and written.endswith(" from None")
    assert ("fetch" in written) == ("fetch" in kept)


def test_a_setting_says_what_it_is_behind_its_value() -> None:
    source = "class Config:\n    order: str = 'a'\n    other: int = 1\nclass Tensors:\n    order: str = 'a'"
    flat = Flat([Section("m", "", ast.parse(source).body)], {})
    comments = ["# order of the text; a: as it is |", "# b: shuffled"]
    config, tensors = list(flat.statements())
    for part in (config.body[0], tensors.body[0]):  # type: ignore[attr-defined]
        part.above, part.behind = comments, []
    shorten_texts(flat, {"Config"})
    assert config.body[0].above == [] and config.body[0].behind == ["# order of the text"]  # type: ignore[attr-defined]
    assert tensors.body[0].above == comments  # type: ignore[attr-defined]


@pytest.mark.parametrize(("about", "title"), [("", "# a/b.py"), ("First line.\n\nMore.", "# a/b.py: First line.")])
def test_a_section_begins_with_the_first_line_about_its_module(about: str, title: str) -> None:
    assert _section(Section("golf.a.b", about, ast.parse("x = 1").body)).splitlines()[0] == title
