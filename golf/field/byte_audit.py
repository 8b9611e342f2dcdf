"""The audit of the bytes behind bits per byte: a tokenizer's byte table against its decoded tokens and the raw text.

Public claims were wrong by 4 % to 18 %: they counted a space that is not written, or a piece at the length of its name.
Too many bytes flatter a score, which is a fault; too few worsen it. Text that a tokenizer normalises away (NFKC and
runs of spaces, in the challenge's own) is no fault of its table. It is reported, and measured where there is raw text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sentencepiece

from golf.errors import GolfError
from golf.field.audit import Audit
from golf.field.run_audit import BYTES_TOLERANCE
from golf.field.sidecar_audit import audit_sidecars, check_scored_bytes, document_bounds, first_documents, read_split
from golf.field.text import UnreadableError, content_of
from golf.tables import table_of
from golf.training.data.byte_tables import ByteTables, byte_tables
from golf.training.data.byte_units import byte_tokenizer
from golf.training.data.caseops import operator_ids

_TEXTS = table_of(__file__)
PLAIN: list[str] = _TEXTS["plain"]
SAMPLES: list[str] = PLAIN + _TEXTS["others"]
Tokenizer = sentencepiece.SentencePieceProcessor


@dataclass(frozen=True)
class TextBytes:
    """UTF-8 bytes of one text, counted in three ways."""

    counted: int  # by the byte table
    decoded: int  # of the decoded tokens
    raw: int | None = None  # of the text as written; None if there are only tokens
    unknown: int = 0  # tokens without a known text
    begins_with_space: bool = False

    @property
    def lacks_first_space(self) -> bool:
        """Tell whether only the document's first space, after BOS, is not counted, as in everybody's table."""
        return self.begins_with_space and self.counted == self.decoded - 1


def audit_bytes(folder: Path, tokenizer_path: Path | None, data: Path | None, text: Path | None, audit: Audit) -> None:
    """Audit the tokenizer at `tokenizer_path`, else the one in `folder`, on samples, shards and raw text.

    Raises `GolfError` for a tokenizer, shards or text that were named and cannot be used.
    """
    own = sorted(folder.glob("*.model"))
    if tokenizer_path is None and not own:
        if data or text:
            raise GolfError(f"{folder} holds no tokenizer: name the one of the data with --tokenizer.")
        audit.unchecked.append("the tokenizer's byte counts: name it with --tokenizer, its shards with --data")
        return
    path = tokenizer_path or own[0]
    try:
        tokenizer = open_tokenizer(path)
    except GolfError:
        # A tokenizer that was named has to be readable; a file that only lies in the folder may be something else.
        if tokenizer_path is not None or data or text:
            raise
        audit.unchecked.append(f"the tokenizer's byte counts: {path.name} is not a SentencePiece model, name one")
        return
    # CaseOps tokens stand for text with its capitals rewritten: their bytes are in sidecars, not in a table.
    if operator_ids(tokenizer):
        audit_sidecars(path.name, tokenizer, data, text, audit)
        return
    tables = byte_tables(tokenizer, tokenizer.vocab_size())
    _check_counts(path.name, "samples with spaces and byte fallback", _of_texts(tokenizer, tables, SAMPLES), audit)
    _check_plain_text(path.name, tokenizer, tables, audit)
    if data is not None:
        _check_shards(path.name, tokenizer, tables, data, audit)
    if text is not None:
        _check_raw_text(path.name, tokenizer, tables, text, audit)
    elif any(b.raw != b.decoded for b in _of_texts(tokenizer, tables, [s for s in SAMPLES if "▁" not in s])):
        audit.unchecked.append(f"raw bytes: {path.name} normalises text before it cuts it; --text FILE measures that")


def open_tokenizer(path: Path) -> Tokenizer:
    """Return the SentencePiece model at `path`, or for the word bytes that of text as bytes.

    Raises `GolfError` if it is none.
    """
    if str(path) == "bytes":
        return byte_tokenizer()
    try:
        return Tokenizer(model_proto=content_of(path))
    except (UnreadableError, RuntimeError) as error:
        raise GolfError(f"{path} is not a SentencePiece model: name one (*.model).") from error


def _of_texts(tokenizer: Tokenizer, tables: ByteTables, texts: Iterable[str]) -> list[TextBytes]:
    """Return the bytes of each text as a document, which is BOS and the text."""
    # A tokenizer without BOS has -1 here. Any token will do: the first one is not counted.
    bos = max(tokenizer.bos_id(), 0)
    return [_of_ids(tokenizer, tables, [bos, *tokenizer.encode(text)], text) for text in texts]


def _of_ids(tokenizer: Tokenizer, tables: ByteTables, ids: Sequence[int], text: str | None = None) -> TextBytes:
    """Return the bytes of a document's tokens, the first of which is BOS."""
    array, decoded = np.array(ids), tokenizer.decode(list(ids[1:]))
    return TextBytes(
        counted=int(tables.of(array[:-1], array[1:]).sum()),
        decoded=len(decoded.encode()),
        raw=None if text is None else len(text.encode()),
        unknown=sum(map(tokenizer.is_unknown, ids[1:])),
        begins_with_space=decoded.startswith(" "),
    )


def _check_counts(name: str, what: str, documents: Sequence[TextBytes], audit: Audit) -> None:
    """Add to `audit` whether the table counts the bytes of `documents` as they decode."""
    # SentencePiece decodes an unknown token to a placeholder, whose bytes say nothing of the text.
    known = [b for b in documents if not b.unknown]
    if unknown := len(documents) - len(known):
        lacking = f"{sum(b.unknown for b in documents)} unknown tokens in {unknown} of {len(documents)} {what}"
        audit.look_at.append(f"{name} has no byte for some text: {lacking}, each counted as no bytes")
    counted, decoded = sum(b.counted for b in known), sum(b.decoded for b in known)
    many = [b for b in known if b.counted > b.decoded]
    few = [b for b in known if b.counted < b.decoded and not b.lacks_first_space]
    rule, these = any(b.lacks_first_space for b in known), f"{len(known)} {what}"
    if many:
        wrong = f"too many bytes in {len(many)} of {these} ({counted:,} bytes for {decoded:,})"
        audit.untrue.append(f"{name} counts {wrong}: a flattered score")
    if few:
        audit.look_at.append(f"{name} counts too few bytes in {len(few)} of {these}: its scores are worse than so")
    if known and not many and not few:
        but = ", but for the space that a document begins with, which nobody counts" if rule else ""
        audit.in_order.append(f"{name} counts the bytes of {these} as they decode{but}")


def _check_plain_text(name: str, tokenizer: Tokenizer, tables: ByteTables, audit: Audit) -> None:
    """Add a fault if plain text decodes to more bytes than it has, by whatever rule."""
    documents = _of_texts(tokenizer, tables, PLAIN)
    if more := sum(max(0, b.decoded - (b.raw or 0)) for b in documents if not b.unknown):
        audit.untrue.append(f"{name} makes {more} bytes more of plain text than it has: a flattered score")


def _check_shards(name: str, tokenizer: Tokenizer, tables: ByteTables, folder: Path, audit: Audit) -> None:
    """Check the table on whole documents of the shards, and the bytes that the logs imply on the tokens they scored."""
    _, tokens = read_split(tokenizer, folder, audit)
    bounds = document_bounds(tokens, tokenizer.bos_id())
    if documents := [_of_ids(tokenizer, tables, tokens[start:end].tolist()) for start, end in bounds]:
        _check_counts(name, "whole documents of the shards", documents, audit)
    else:
        bos = tokenizer.bos_id()
        audit.unchecked.append(f"whole documents: {folder} has no BOS token ({bos}) to tell them apart by")
    check_scored_bytes(tables.of(tokens[:-1], tokens[1:]), folder, audit)


def _check_raw_text(name: str, tokenizer: Tokenizer, tables: ByteTables, path: Path, audit: Audit) -> None:
    """Check the table on whole documents of raw text, whose bytes are those that bits per byte mean."""
    documents = _of_texts(tokenizer, tables, first_documents(path))
    _check_counts(name, f"whole documents of {path.name}", documents, audit)
    counted, raw = sum(b.counted for b in documents), sum(b.raw or 0 for b in documents)
    decoded = sum(b.decoded for b in documents if not b.unknown)
    part = f"{counted:,} bytes for {raw:,} of raw text ({counted / raw - 1:+.2%})"
    if abs(counted / raw - 1) <= BYTES_TOLERANCE:
        audit.in_order.append(f"{name} counts {part} in {len(documents)} whole documents of {path.name}")
        return
    why = "normalised away" if decoded < raw else "added by normalisation"
    effect = "its score is worse than the text's" if counted < raw else "its score is better than the text's"
    audit.look_at.append(f"{name} counts {part} in {len(documents)} documents of {path.name}, {why}: {effect}")
