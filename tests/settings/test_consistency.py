"""The sentences of consistency.yaml are those that the checks name, with values for every placeholder."""

import ast
import copy
import itertools
import re
import string
from pathlib import Path
from typing import Any

import pytest

from golf.errors import GolfError
from golf.settings import consistency
from golf.settings.composition import compose


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


DOCUMENTS = {"data.loader": "packed_shuffled", "model.within_documents": True, "eval.documents": True}
LOADERS = ["sequential", "shuffled", "packed", "packed_shuffled"]


def set_in(cfg: Any, key: str, value: Any) -> None:
    """Set one field of a configuration."""
    first, _, rest = key.partition(".")
    if rest:
        set_in(cfg[first] if isinstance(cfg, dict) else getattr(cfg, first), rest, value)
    else:
        object.__setattr__(cfg, first, value)


@pytest.mark.parametrize("tech", [[], ["by_length"], ["smear"], ["smear", "bigram"], ["by_length", "smear"]])
def test_one_sentence_names_all_settings_that_need_each_other(tech: list[str]) -> None:
    """What the first sentence says to set makes a run, whatever was given."""
    mixing = [f"tech.{name}.mask_bos" for name in tech if name != "by_length"]
    given = DOCUMENTS | dict.fromkeys(mixing, True)
    valid = compose(["scale=laptop", f"tech={tech}", *(f"{key}={value}" for key, value in given.items())])
    refused = 0
    for loader, within, apart, masked in itertools.product(LOADERS, *[(False, True)] * 3):
        cfg = copy.deepcopy(valid)
        given = dict(zip(DOCUMENTS, (loader, within, apart), strict=True)) | dict.fromkeys(mixing, masked)
        for key, value in given.items():
            set_in(cfg, key, value)
        try:
            consistency.check(cfg)
        except GolfError as error:
            refused += 1
            for key, value in re.findall(r"([a-z]\w*\.[\w.]+)=(\w+)", str(error).rpartition(": set ")[2]):
                set_in(cfg, key, value == "true" or value)
            consistency.check(cfg)
    assert refused
