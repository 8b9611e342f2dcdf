"""Data sets of one's own text: documents are read from files, tokenized and written as shards."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from golf.errors import GolfError
from golf.files import new_folder, write_atomic
from golf.training.data.byte_tables import load_tokenizer
from golf.training.data.documents import ShardWriter, encode_documents, train_tokenizer

TOKENIZER_SAMPLE_CHARS = 50_000_000  # characters of training documents that the tokenizer is trained on


def read_documents(sources: Iterable[Path], text_key: str = "text") -> Iterator[str]:
    """Yield the documents of `.jsonl` files (objects with text under `text_key`), text files, and folders of both.

    A text file is one document. Empty documents are left out.
    """
    for source in sources:
        if not source.exists():
            raise GolfError(f"{source} does not exist: name .jsonl files, text files or folders of them.")
        files = sorted(p for p in source.rglob("*") if p.is_file()) if source.is_dir() else [source]
        for file in files:
            texts = _jsonl_texts(file, text_key) if file.suffix == ".jsonl" else [_read_text(file)]
            yield from (text for text in texts if text.strip())


def _read_text(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise GolfError(f"{file} is not UTF-8 text (byte {error.start}): convert it or leave it out.") from error


def _jsonl_texts(file: Path, text_key: str) -> Iterator[str]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                text = json.loads(line)[text_key]
            except (ValueError, KeyError, TypeError, IndexError) as error:
                raise GolfError(
                    f"{file} line {number} is not a JSON object with a '{text_key}': name the field with --text-key."
                ) from error
            if not isinstance(text, str):
                raise GolfError(f"{file} line {number}: '{text_key}' is not a string.")
            yield text


@dataclass(frozen=True)
class OwnDataset:
    """The files and counts of a data set that `make_dataset` wrote."""

    folder: Path
    tokenizer_path: Path
    vocab_size: int
    documents: int
    train_tokens: int
    val_tokens: int


def make_dataset(
    sources: list[Path],
    *,
    name: str,
    root: Path,
    vocab_size: int,
    tokenizer_path: Path | None = None,
    val_every: int = 20,
    text_key: str = "text",
) -> OwnDataset:
    """Write `root/datasets/<name>` and, unless one is given, `root/tokenizers/<name>_<vocab_size>_bpe.model`.

    Every `val_every`-th document is validation. The tokenizer sees training documents only.
    """
    folder = root / "datasets" / name
    if folder.exists():
        raise GolfError(f"{folder} exists already: remove it or choose another --name.")
    if tokenizer_path is None:
        tokenizer_path = root / "tokenizers" / f"{name}_{vocab_size}_bpe.model"
        documents = enumerate(read_documents(sources, text_key))
        training = (text for index, text in documents if not _is_validation(index, val_every))
        write_atomic(tokenizer_path, train_tokenizer(list(_first_chars(training)), vocab_size))
    tokenizer = load_tokenizer(tokenizer_path, vocab_size)
    with new_folder(folder) as unfinished:
        train, val = ShardWriter(unfinished, f"{name}_train"), ShardWriter(unfinished, f"{name}_val")
        index = -1
        for index, tokens in enumerate(encode_documents(tokenizer, read_documents(sources, text_key))):
            (val if _is_validation(index, val_every) else train).add(tokens)
        train.close()
        val.close()
        if not (train.total_tokens and val.total_tokens):
            raise GolfError(f"There are fewer than {val_every} documents: lower --val-every or give more text.")
    return OwnDataset(folder, tokenizer_path, vocab_size, index + 1, train.total_tokens, val.total_tokens)


def _is_validation(index: int, val_every: int) -> bool:
    return index % val_every == val_every - 1


def _first_chars(texts: Iterable[str]) -> Iterator[str]:
    chars = 0
    for text in texts:
        yield text
        chars += len(text)
        if chars >= TOKENIZER_SAMPLE_CHARS:
            return
