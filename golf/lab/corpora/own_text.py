"""Data sets of one's own text: documents are read from files, tokenized and written as shards."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import sentencepiece

from golf.errors import GolfError
from golf.files import new_folder, write_atomic
from golf.settings.consistency import MAX_VOCAB_SIZE
from golf.training.data.byte_tables import load_tokenizer
from golf.training.data.byte_units import byte_tokenizer
from golf.training.data.caseops import OPERATORS, encode_capitals, operator_ids
from golf.training.data.documents import BOS_ID, train_tokenizer, write_splits

# JSON can hold one half of a surrogate pair, which has no UTF-8 form.
HALF_CHARACTER = re.compile("[\ud800-\udfff]")
TOKENIZER_SAMPLE_CHARS = 50_000_000  # characters of training documents that the tokenizer is trained on


def read_documents(sources: Iterable[Path], text_key: str = "text", skipped: list[str] | None = None) -> Iterator[str]:
    """Yield the documents of `.jsonl` files (objects with text under `text_key`), text files, and folders of both.

    A text file is one document. Empty documents are left out. An unreadable file in a folder is left out, too, and a
    sentence about it is added to `skipped`. Raises `GolfError` for a file that was named itself.
    """
    return (text for text in _read_all(sources, text_key, skipped) if text.strip())


def _read_all(sources: Iterable[Path], text_key: str, skipped: list[str] | None = None) -> Iterator[str]:
    for source in sources:
        if not source.exists():
            raise GolfError(f"{source} does not exist: name .jsonl files, text files or folders of them.")
        for file in sorted(p for p in source.rglob("*") if p.is_file()) if source.is_dir() else [source]:
            try:
                yield from _jsonl_texts(file, text_key) if file.suffix == ".jsonl" else _read_text(file)
            except GolfError as error:
                if not source.is_dir():
                    raise
                if skipped is not None:
                    skipped.append(f"{error} It is left out from there on.")


def _read_text(file: Path) -> Iterator[str]:
    try:
        yield file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise GolfError(f"{file} is not UTF-8 text (byte {error.start}): convert it or leave it out.") from error


def _jsonl_texts(file: Path, text_key: str) -> Iterator[str]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            # Some editors end a file with an empty line, and some begin it with a byte order mark.
            if not line.strip():
                continue
            try:
                text = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))[text_key]
            except UnicodeDecodeError as error:
                raise GolfError(
                    f"{file} line {number} is not UTF-8 text (byte {error.start}): convert the file or leave it out."
                ) from error
            except ValueError as error:
                raise GolfError(f"{file} line {number} is not JSON: mend it or leave it out.") from error
            except (KeyError, TypeError, IndexError) as error:
                raise GolfError(
                    f"{file} line {number} is not a JSON object with a '{text_key}': name the field with --text-key."
                ) from error
            if not isinstance(text, str):
                raise GolfError(f"{file} line {number}: '{text_key}' is not a string.")
            if half := HALF_CHARACTER.search(text):
                raise GolfError(
                    f"{file} line {number}: '{text_key}' holds \\u{ord(half[0]):04x}, half of a character, which UTF-8 "
                    "cannot express: write the document again from its source or leave it out."
                )
            yield text


@dataclass(frozen=True)
class Recipe:
    """How documents become a data set."""

    name: str
    vocab_size: int
    tokenizer_path: Path | None = None  # SentencePiece model to use; None = one is trained
    caseops: bool = False  # capitals as operators, and a sidecar with the bytes of the validation text
    fused: bool = False  # with caseops, a space and the operator behind it as one token
    val_every: int = 20  # one document in this many is for validation
    val_docs: int | None = None  # number of first documents for validation, in place of `val_every`
    text_key: str = "text"  # field of a .jsonl line that holds the text
    prefix: str = ""  # start of the shards' names; empty = the name
    is_bytes: bool = False  # bytes as tokens, `data.units=bytes`, without a tokenizer

    def is_validation(self, index: int) -> bool:
        """Tell whether document `index`, counted without empty ones, belongs to the validation split."""
        return index % self.val_every == self.val_every - 1 if self.val_docs is None else index < self.val_docs


@dataclass(frozen=True)
class OwnDataset:
    """The files and counts of a data set that `make_dataset` wrote."""

    folder: Path
    tokenizer_path: Path  # where nothing is for bytes
    vocab_size: int
    documents: int
    train_tokens: int
    val_tokens: int
    val_documents: int = 0
    empty: int = 0  # documents without text, which are in no split
    repeated: int = 0  # documents whose text is in the validation split, too, and which training therefore leaves out
    skipped: tuple[str, ...] = ()  # sentences about what could not be read in a folder
    escaped: int = 0  # documents that hold characters with which CaseOps writes its operators
    is_bytes: bool = False  # every byte is a token, and there is no tokenizer

    def settings(self) -> dict[str, str]:
        """Return the settings that train on it, by key."""
        tokens = {"data.units": "bytes"} if self.is_bytes else {"data.tokenizer_path": str(self.tokenizer_path)}
        return {"data": "own", "data.path": str(self.folder), **tokens, "data.vocab_size": str(self.vocab_size)}


def make_dataset(sources: list[Path], root: Path, recipe: Recipe) -> OwnDataset:
    """Write `root/datasets/<name>` and, unless one is given or none is needed, a tokenizer into `root/tokenizers`.

    The splits share no document, and the tokenizer sees training documents only. A call that fails leaves neither.
    """
    for option, word in (("--name", recipe.name), ("--prefix", recipe.prefix or recipe.name)):
        if "/" in word or word in ("", ".", ".."):
            raise GolfError(f"{option} {word!r} names files: give a word without slashes, --root names the folder.")
    if recipe.vocab_size > MAX_VOCAB_SIZE:
        most = f"{MAX_VOCAB_SIZE} pieces are the most that 16-bit tokens can name"
        raise GolfError(f"--vocab-size {recipe.vocab_size} is too large: {most}.")
    if recipe.fused and (recipe.tokenizer_path or not recipe.caseops):
        raise GolfError("--fuse-operators trains a tokenizer for --caseops: add --caseops, and give no --tokenizer.")
    if recipe.is_bytes and (recipe.tokenizer_path or recipe.caseops):
        raise GolfError("--bytes makes every byte a token: leave out --tokenizer, --caseops and --fuse-operators.")
    if (folder := root / "datasets" / recipe.name).exists():
        raise GolfError(f"{folder} exists already: remove it or choose another --name.")
    splits = _Splits(sources, recipe)
    tokenizer_path = recipe.tokenizer_path or root / "tokenizers" / f"{recipe.name}_{recipe.vocab_size}_bpe.model"
    if recipe.is_bytes:
        tokenizer = byte_tokenizer()
    elif recipe.tokenizer_path is None:
        # A piece with an operator in it would make the tokenizer one of CaseOps text. Bytes spell the operator instead.
        written = encode_capitals if recipe.caseops else lambda text: text.translate(dict.fromkeys(map(ord, OPERATORS)))
        sample = list(map(written, _first_chars(splits.training())))
        model = train_tokenizer(sample, recipe.vocab_size, with_operators=recipe.caseops, fused=recipe.fused)
        tokenizer = sentencepiece.SentencePieceProcessor(model_proto=model)
    else:
        tokenizer = load_tokenizer(tokenizer_path, recipe.vocab_size)
        _check_operators(tokenizer_path, bool(operator_ids(tokenizer)), recipe.caseops)
        if not tokenizer.is_control(BOS_ID):
            raise GolfError(
                f"Token {BOS_ID} of {tokenizer_path} is {tokenizer.id_to_piece(BOS_ID)!r}, but documents begin with "
                f"it: give a tokenizer with bos_id={BOS_ID}, or leave --tokenizer out."
            )
    prefix = recipe.prefix or recipe.name
    # The folder appears when it is complete, so that an interrupted call leaves no half data set.
    with new_folder(folder) as unfinished:
        texts = splits.training(), splits.validation()
        train_tokens, val_tokens = write_splits(unfinished, prefix, tokenizer, *texts, with_sidecar=recipe.caseops)
        if recipe.tokenizer_path is None and not recipe.is_bytes:
            write_atomic(tokenizer_path, model)
    return OwnDataset(
        folder,
        tokenizer_path,
        tokenizer.vocab_size(),
        documents=splits.documents,
        train_tokens=train_tokens,
        val_tokens=val_tokens,
        val_documents=splits.val_documents,
        empty=splits.empty,
        repeated=splits.repeated,
        escaped=splits.escaped,
        skipped=tuple(splits.skipped),
        is_bytes=recipe.is_bytes,
    )


class _Splits:
    """The documents of `sources` in two splits that share none. Reads the sources once to count, then once a split.

    Raises `GolfError` for a source that cannot be read or a split without a document.
    """

    def __init__(self, sources: list[Path], recipe: Recipe):
        self.sources, self.recipe = sources, recipe
        self.documents = self.empty = self.escaped = self.val_documents = self.repeated = 0
        # Digests and not texts, so that memory hardly grows with the documents.
        self.in_validation: set[bytes] = set()
        self.skipped: list[str] = []
        for text in _read_all(sources, recipe.text_key, self.skipped):
            if not text.strip():
                self.empty += 1
                continue
            if recipe.is_validation(self.documents):
                self.in_validation.add(_digest(text))
                self.val_documents += 1
            self.documents += 1
            self.escaped += recipe.caseops and any(operator in text for operator in OPERATORS)
        self.repeated = self.documents - self.val_documents - sum(1 for _ in self.training())
        if not self.val_documents or self.documents == self.val_documents + self.repeated:
            raise GolfError(_too_few(recipe, self.documents, self.repeated))

    def training(self) -> Iterator[str]:
        """Yield the training documents, without those whose text is in the validation split as well."""
        for index, text in enumerate(read_documents(self.sources, self.recipe.text_key)):
            if not self.recipe.is_validation(index) and _digest(text) not in self.in_validation:
                yield text

    def validation(self) -> Iterator[str]:
        """Yield the validation documents."""
        for index, text in enumerate(read_documents(self.sources, self.recipe.text_key)):
            if self.recipe.is_validation(index):
                yield text


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _too_few(recipe: Recipe, documents: int, repeated: int) -> str:
    if not documents:
        return "No document holds text: name files or folders that do, or their field with --text-key."
    if repeated:
        return "Every training document is in the validation split as well: give more text."
    if recipe.val_docs is not None:
        return f"There are {documents} documents: --val-docs={recipe.val_docs} leaves none for training, so lower it."
    few = f"There are fewer than {recipe.val_every} documents, and a text file is one document"
    return f"{few}: give more, such as a .jsonl file with a document a line, or lower --val-every."


def _check_operators(path: Path, has_operators: bool, wanted: bool) -> None:
    if wanted and not has_operators:
        raise GolfError(f"{path} has no pieces for the CaseOps operators: leave --caseops out or give no --tokenizer.")
    if has_operators and not wanted:
        raise GolfError(f"{path} was made for CaseOps text: add --caseops.")


def _first_chars(texts: Iterable[str]) -> Iterator[str]:
    chars = 0
    for text in texts:
        yield text
        chars += len(text)
        if chars >= TOKENIZER_SAMPLE_CHARS:
            return
