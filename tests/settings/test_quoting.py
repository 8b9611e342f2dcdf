"""Values in Hydra's quotes come back as they are."""

from __future__ import annotations

import pytest

from golf.settings.composition import compose
from golf.settings.quoting import quoted
from tests.support import refusal

VALUES = ["plain-1.5e3", "ü", "my data/x", "it's", 'a"b', "C:\\x\\", '\\"', "a,b", "[x", "a=b", "", " a "]


@pytest.mark.parametrize("value", VALUES)
def test_a_quoted_value_composes_to_itself(value: str) -> None:
    assert compose(["scale=laptop", f"note={quoted(value)}"]).note == value


def test_what_the_grammar_cannot_read_is_answered_with_quotes_that_it_can() -> None:
    assert refusal("data.path=data/ü").endswith("""as in 'data.path="data/ü"'.""")
    assert "close every bracket" in refusal("tech=[bigram")
    assert "'.path' in .path=x is no setting" in refusal(".path=x")
