"""Reading scripts without running them."""

import ast
import base64
import lzma
import zlib
from pathlib import Path

import pytest

from golf.field import script_reader
from golf.field.script_reader import imported_packages, read_script, suspicions
from golf.submission.script.wrapped import wrapped

PROGRAM = "import torch\n" + "".join(f"print({i**5})\n" for i in range(300))
RAW = lzma.compress(PROGRAM.encode(), lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2}])
LZMA, ZLIB = lzma.compress(PROGRAM.encode()), zlib.compress(PROGRAM.encode())


@pytest.mark.parametrize(
    "script",
    [
        wrapped(PROGRAM, "base85"),
        wrapped(PROGRAM, "raw"),
        f"import lzma,base64\nexec(lzma.decompress(base64.b85decode({base64.b85encode(LZMA)!r})))",
        f"import lzma as L,base64 as B\nexec(L.decompress(B.b85decode({base64.b85encode(RAW)!r}),L.FORMAT_RAW))",
        f"import zlib,base64;exec(zlib.decompress(base64.b64decode('{base64.b64encode(ZLIB).decode()}')))",
    ],
)
def test_packed_scripts_are_unpacked(tmp_path: Path, script: str | bytes) -> None:
    (tmp_path / "train_gpt.py").write_bytes(script.encode() if isinstance(script, str) else script)
    found = read_script(tmp_path / "train_gpt.py")
    assert found.text == PROGRAM and found.layers and found.tree is not None


def test_a_plain_script_stays_as_it_is_and_a_broken_one_says_so(tmp_path: Path) -> None:
    path = tmp_path / "train_gpt.py"
    path.write_text(PROGRAM)
    assert read_script(path).text == PROGRAM and not read_script(path).layers
    path.write_text("def f(:\n")
    assert "is not Python" in read_script(path).problem
    path.write_text("x=1\n" * (1 + (1 << 20)))
    assert "over 4,194,304 characters of source: no script is that large" in read_script(path).problem
    path.write_text("")
    assert "is empty" in read_script(path).problem


def test_suspicions_are_about_network_and_text_in_the_wrong_place() -> None:
    tree = ast.parse(
        "import requests\n"
        "def eval_val(x):\n    return load('fineweb_train_*.bin')\n"
        "def train(x):\n    return val_tokens[x]\n"
        "def main():\n    return val_tokens, train_files\n"
    )
    found = suspicions(tree)
    assert len(found) == 3
    assert "imports requests" in found[0] and "eval_val names training" in found[1] and "train names val" in found[2]


def test_packages_are_those_outside_the_standard_library() -> None:
    tree = ast.parse(
        "import os, torch.nn\nfrom brotli import compress\nfrom . import x\ndef f():\n    import zstandard"
    )
    assert imported_packages(tree) == {"torch", "brotli", "zstandard"}


def test_a_script_that_unpacks_to_millions_of_statements_is_refused_unparsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = base64.b85encode(zlib.compress(b"x=1;" * 2_000_000, 9)).decode()
    script = tmp_path / "train_gpt.py"
    script.write_text(f"import zlib, base64\nexec(zlib.decompress(base64.b85decode('{packed}')))\n")
    sizes: list[int] = []

    def parse(text: str) -> ast.Module:
        sizes.append(len(text))
        return ast.parse(text)

    monkeypatch.setattr(script_reader, "parse", parse)
    found = script_reader.read_script(script)
    assert (
        found.layers == ("zlib",)
        and "has over 4,194,304 characters of source: no script is that large" in found.problem
    )
    assert max(sizes) < 100_000


def test_line_breaks_in_a_packed_text_are_taken_out(tmp_path: Path) -> None:
    packed = base64.b85encode(LZMA).decode()
    lines = "\n".join(packed[i : i + 80] for i in range(0, len(packed), 80))
    path = tmp_path / "train_gpt.py"
    path.write_text(
        f'import lzma,base64\n_b=b"""\n{lines}\n"""\n'
        'exec(lzma.decompress(base64.b85decode(_b.replace(b"\\n",b""))).decode())\n'
    )
    script = read_script(path)
    assert script.text == PROGRAM and not script.is_still_packed
