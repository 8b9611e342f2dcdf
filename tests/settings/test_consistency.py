"""The sentences of consistency.yaml are those that the checks name, with values for every placeholder."""

import ast
import string
from pathlib import Path

from golf.settings import consistency


def used() -> dict[str, set[str]]:
    """Return the values that are filled into each sentence, by its name."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(ast.parse(Path(consistency.__file__).read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "_require":
            found[ast.literal_eval(node.args[1])] = {str(keyword.arg) for keyword in node.keywords}
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("SENTENCES['"):
            assert isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Subscript)
            found[ast.literal_eval(node.func.value.slice)] = {str(keyword.arg) for keyword in node.keywords}
    return found


def test_every_sentence_is_used_and_has_its_values() -> None:
    fields = {
        name: {field.partition(".")[0] for _, field, _, _ in string.Formatter().parse(sentence) if field}
        for name, sentence in consistency.SENTENCES.items()
    }
    assert fields == used()
