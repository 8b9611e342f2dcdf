"""Every variable that Python reads when it runs a script is found in its source, whatever the script calls the read."""

from __future__ import annotations

import ast
import os
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golf.field.script_reader import parsed_script
from golf.field.script_switches import settings
from golf.field.script_variables import variables_of_script
from tests.support import golf_command

READERS = {  # what a script calls a read of an int, and its definition
    "int(os.environ.get({name!r}, {default}))": "",
    "int(os.getenv({name!r}, default={default}))": "",
    "int(environ.get({name!r}, {default}))": "from os import environ",
    "int(getenv({name!r}, {default}))": "from os import getenv",
    "int(_e({name!r}, {default}))": "_e = os.environ.get",
    "int(_env.get({name!r}, {default}))": "_env = os.environ",
    "env_int({name!r}, {default})": "def env_int(name, default):\n    return int(os.environ.get(name, default))",
    "env_item({name!r}, {default})": (
        "def env_item(key, d=0):\n    return int(os.environ[key]) if key in os.environ else d"
    ),
    "env_key(default={default}, key={name!r})": (
        "def env_key(key, default):\n    v = os.environ.get(key)\n    return default if v is None else int(v)"
    ),
    "short({name!r}, {default})": "short = lambda k, d: int(os.environ.get(k, d))",
    "outer({name!r}, {default})": (
        "def inner(k, d):\n    return os.environ.get(k, d)\n\n\ndef outer(k, d):\n    return int(inner(k, d))"
    ),
    "looped[{name!r}]": "looped = {k: int(os.environ.get(k, 7)) for k in ('NUM_LAYERS', 'MODEL_DIM', 'XSA_LAST_N')}",
}
USE = "\nargs = Hyperparameters()\nprint(args.num_layers, args.model_dim, args.xsa_last_n)\n"
NAMES = ("NUM_LAYERS", "MODEL_DIM", "XSA_LAST_N")


class Watched(dict[str, str]):
    """An environment that remembers the names that somebody asks for."""

    def __init__(self, texts: dict[str, str]):
        super().__init__(texts)
        self.asked = set[str]()

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self.asked.add(str(name))
        return super().__contains__(name)


def script_of(forms: list[str], defaults: list[int]) -> str:
    reads = [form.format(name=name, default=d) for form, name, d in zip(forms, NAMES, defaults, strict=True)]
    body = [f"    {name.lower()} = {read}" for name, read in zip(NAMES, reads, strict=True)]
    return "\n".join(["import os", *{READERS[form] for form in forms}, "class Hyperparameters:", *body])


@given(
    st.lists(st.sampled_from([*READERS]), min_size=3, max_size=3),
    st.lists(st.integers(1, 9), min_size=3, max_size=3),
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["2", "5"])),
)
def test_what_python_reads_is_found(forms: list[str], defaults: list[int], texts: dict[str, str]) -> None:
    source, ran, watched = script_of(forms, defaults), dict[str, Any](), Watched(texts)
    with patch.object(os, "environ", watched), patch.object(os, "getenv", watched.get):
        exec(source, ran)
    tree = parsed_script(source).tree
    assert isinstance(tree, ast.Module)
    found = variables_of_script(parsed_script(source), "x").defaults
    assert watched.asked <= {*found}
    own = vars(ran["Hyperparameters"])
    for form, name, default in zip(forms, NAMES, defaults, strict=True):
        # A default that is said is the one that Python takes, and so is a value that is followed.
        assert found[name] in (None, str(default)), form
        followed = settings(tree, texts)[0].get(name.lower())
        assert not isinstance(followed, int) or followed == own[name.lower()], form
        assert found[name] is not None or "looped" in form, form


def test_what_writes_a_variable_does_not_read_it() -> None:
    put = "def put(name, value):\n    os.environ[name] = value\n"
    text = f"import os\n{put}put('NUM_LAYERS', '3')\nx = os.getenv('SEED')\n"
    assert {*variables_of_script(parsed_script(text), "x").defaults} == {"SEED"}


@pytest.mark.parametrize("form", READERS)
def test_a_variable_that_an_own_function_reads_is_not_said_to_be_missing(form: str, tmp_path: Any) -> None:
    (tmp_path / "train_gpt.py").write_text(script_of([form] * 3, [9, 512, 4]) + USE)
    done = golf_command("from-env", "--script", str(tmp_path / "train_gpt.py"), "NUM_LAYERS=11 MODEL_DIM=384")
    assert "does not have" not in done.stderr and "model.num_layers=11" in done.stdout, done.stderr
    assert "model.model_dim=384" in done.stdout
