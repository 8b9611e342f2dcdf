"""The embedded corpus: docstrings and comments of packages that golf depends on anyway, at pinned versions.

It needs no download, and the same versions give the same tokens on every machine and Python. Bits per byte on it
compare with each other only: API prose repeats itself far more than web text.
"""

from __future__ import annotations

import ast
import bisect
import hashlib
import importlib.metadata
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

from golf.errors import GolfError
from golf.files import new_folder, write_atomic
from golf.training.data.byte_tables import load_tokenizer
from golf.training.data.byte_units import byte_tokenizer
from golf.training.data.caseops import encode_capitals
from golf.training.data.documents import train_tokenizer, write_splits

VERSIONS = {
    "mpmath": "1.3.0",
    "networkx": "3.6.1",
    "numpy": "2.4.6",
    "sympy": "1.14.0",
    # SentencePiece gives no text. It is pinned because another version may train other pieces.
    "sentencepiece": "0.2.3",
}
# They differ between platforms and Pythons.
LEFT_OUT = ("numpy/__config__.py", "numpy/version.py", "numpy/distutils/")
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
MIN_BLOCK_CHARS = 40
VALIDATION_ONE_IN = 16


def build(folder: Path, tokenizer_path: Path | None, vocab_size: int, *, with_operators: bool = False) -> None:
    """Write the corpus' tokenizer and `pydocs_{train,val}_*.bin` shards; about ten seconds on two cores.

    Without a `tokenizer_path` the tokens are bytes.
    `with_operators` writes capitals as CaseOps operators, and a byte sidecar for the validation shard.

    A document is a top-level class or function with its docstrings and comments. Validation takes whole modules, and
    both splits are in a frozen random order. The folder appears whole or not at all: an interrupted build is repeated,
    and two builds at once do not mix.
    """
    _check_versions()
    splits: dict[bool, list[tuple[bytes, str]]] = {False: [], True: []}
    for module, documents in _modules():
        # By its name's hash, so that a module stays in its split whatever other modules there are.
        is_validation = _digest(module)[-1] % VALIDATION_ONE_IN == 0
        splits[is_validation] += [(_digest(f"{module} {i}"), text) for i, text in enumerate(documents)]
    # Sorted by hashes: an order as good as random that no library's generator can change.
    train, validation = ([text for _, text in sorted(splits[key])] for key in (False, True))
    tokenizer = byte_tokenizer()
    if tokenizer_path is not None:
        texts = [encode_capitals(text) for text in train] if with_operators else train
        write_atomic(tokenizer_path, train_tokenizer(texts, vocab_size, with_operators=with_operators))
        tokenizer = load_tokenizer(tokenizer_path, vocab_size)
    with new_folder(folder) as unfinished:
        write_splits(unfinished, "pydocs", tokenizer, train, validation, with_sidecar=with_operators)


def _check_versions() -> None:
    for package, wanted in VERSIONS.items():
        try:
            found = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found = "none"
        if found != wanted:
            raise GolfError(
                f"data=pydocs is made from {package} {wanted}, but {found} is installed: run `pip install -e .` in "
                "golf's folder, or copy data/datasets/pydocs_sp1024 and data/tokenizers from a machine that has it."
            )


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def _modules() -> Iterator[tuple[str, list[str]]]:
    """Yield `(file name, documents)` of every module, each block of text at its first occurrence only."""
    seen: set[str] = set()
    for package in sorted(set(VERSIONS) - {"sentencepiece"}):
        for file in sorted(importlib.metadata.files(package) or [], key=str):
            name = file.as_posix()
            if not name.endswith(".py") or "/tests/" in name or name.startswith(LEFT_OUT):
                continue
            source = Path(str(file.locate())).read_bytes().decode("utf-8").replace("\r\n", "\n")
            documents: dict[int, list[str]] = {}
            for section, block in _prose(source):
                if len(block) >= MIN_BLOCK_CHARS and block not in seen:
                    seen.add(block)
                    documents.setdefault(section, []).append(block)
            yield name, ["\n\n".join(blocks) + "\n" for blocks in documents.values()]


def _prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield docstrings and runs of whole-line comments in the order of the file, with the section they belong to.

    A section ends where a top-level class or function does.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in old docstrings
        tree = ast.parse(source)
    ends = [node.end_lineno or 0 for node in tree.body if isinstance(node, DEFINITIONS)]
    docstrings: dict[int, str] = {}
    in_string: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, *DEFINITIONS)):
            if text := ast.get_docstring(node, clean=False):
                docstrings[node.body[0].lineno] = text
        elif isinstance(node, ast.Constant | ast.JoinedStr):
            # A # inside of a string begins no comment.
            in_string.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    comment: list[str] = []
    # Not splitlines, which also cuts at form feeds: the numbers would not be those of `ast`.
    for number, line in enumerate([*source.split("\n"), ""], start=1):
        stripped, section = line.strip(), bisect.bisect_left(ends, number)
        if stripped.startswith("#") and number not in in_string:
            comment.append(re.sub(r"^#+:? ?", "", stripped))
            continue
        if comment:
            yield section, _dedent("\n".join(comment))
            comment = []
        if number in docstrings:
            yield section, _dedent(docstrings[number])


def _dedent(text: str) -> str:
    """Remove common indentation below the first line, trailing spaces and outer blank lines.

    Own code because the standard library's differs between Python versions.
    """
    lines = [line.rstrip() for line in text.expandtabs().split("\n")]
    margin = min((len(line) - len(line.lstrip()) for line in lines[1:] if line), default=0)
    return "\n".join([lines[0].lstrip(), *(line[margin:] for line in lines[1:])]).strip("\n")
