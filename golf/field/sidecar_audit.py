"""The audit of CaseOps data: sidecars against their tokens and the raw text, and the split of the documents.

Public preparation scripts of 19 to 23 April counted each case operator as its own three bytes, which flatters a score
by 9 %. All of them take 10,000 validation documents unless told otherwise, and train on the challenge's other 40,000.
"""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

import numpy as np
import sentencepiece

from golf.errors import GolfError
from golf.field.audit import Audit
from golf.field.run_audit import BYTES_TOLERANCE
from golf.field.text import text_of
from golf.lab.corpora.own_text import read_documents
from golf.training.data.caseops import count_bytes, decode_capitals, encode_capitals
from golf.training.data.shards import find_shards, open_shard
from golf.training.data.sidecar import read_sidecars, sidecar_faults

MOST_DOCUMENTS = 2000
VALIDATION = "*_val_*.bin"
VALIDATION_DOCUMENTS, LEAKING_DOCUMENTS = 50_000, 10_000
_LEAKING_DEFAULT = re.compile(r"""["']--val-docs["'][^)]*\bdefault\s*=\s*10_?000\b""")
Tokenizer = sentencepiece.SentencePieceProcessor


def audit_sidecars(name: str, tokenizer: Tokenizer, data: Path | None, text: Path | None, audit: Audit) -> None:
    """Audit the bytes behind the tokens of the CaseOps tokenizer called `name`, in the shards `data` and on raw `text`.

    Raises `GolfError` for shards or text that were named and cannot be used.
    """
    if data is None:
        audit.unchecked.append(f"{name} writes capitals as operators: name the shards and their sidecars with --data")
    else:
        _audit_shards(tokenizer, data, audit)
    if text is not None:
        _audit_text(name, tokenizer, text, audit)


def read_split(tokenizer: Tokenizer, folder: Path, audit: Audit) -> tuple[list[Path], np.ndarray]:
    """Return the shards of the validation split in `folder` and all their tokens, and check the split's size.

    Raises `GolfError` for tokens that `tokenizer` does not know.
    """
    # Documents can span shards.
    files = find_shards(folder, VALIDATION, "val")
    tokens = np.concatenate([open_shard(path) for path in files])
    if tokens.size and int(tokens.max()) >= tokenizer.vocab_size():
        raise GolfError(f"{folder} holds token {int(tokens.max())}, which this tokenizer does not know: name its own.")
    if np.count_nonzero(tokens == tokenizer.bos_id()) == LEAKING_DOCUMENTS:
        audit.against_rules.append(
            f"{folder} validates on {LEAKING_DOCUMENTS:,} documents, the default of the public preparation: the other "
            f"{VALIDATION_DOCUMENTS - LEAKING_DOCUMENTS:,} of the challenge's are in its training data"
        )
    return files, tokens


def document_bounds(tokens: np.ndarray, bos: int) -> list[tuple[int, int]]:
    """Return (start, end) of the first documents among `tokens`, BOS included, `MOST_DOCUMENTS` at most."""
    starts = np.flatnonzero(tokens == bos)[: MOST_DOCUMENTS + 1].tolist()
    # Without a start there is no end either.
    return list(zip(starts, [*starts[1:], tokens.size], strict=False))[:MOST_DOCUMENTS]


def first_documents(path: Path) -> list[str]:
    """Return the first raw documents of a file, `MOST_DOCUMENTS` at most. Raises `GolfError` without any."""
    if not (documents := list(islice(read_documents([path]), MOST_DOCUMENTS))):
        raise GolfError(f"{path} holds no text: give --text documents as .jsonl or plain text.")
    return documents


def _audit_shards(tokenizer: Tokenizer, folder: Path, audit: Audit) -> None:
    files, tokens = read_split(tokenizer, folder, audit)
    try:
        counts = read_sidecars(files)
    except GolfError as error:
        audit.untrue.append(f"no byte count stands for the scored text: {error}")
        return
    faults = sidecar_faults(counts, tokens, tokenizer)
    audit.untrue += [f"the byte sidecar of {folder} {fault}" for fault in faults]
    if not faults:
        _compare_with_decoded(tokenizer, tokens, counts, folder, audit)
    # The first token of the split is only an input: nothing predicts it.
    check_scored_bytes(counts[1:], folder, audit)


def _compare_with_decoded(
    tokenizer: Tokenizer, tokens: np.ndarray, counts: np.ndarray, folder: Path, audit: Audit
) -> None:
    """Tell how the bytes of whole documents compare with the text that their tokens decode to."""
    bounds = document_bounds(tokens, tokenizer.bos_id())
    counted = decoded = 0
    for start, end in bounds:
        counted += int(counts[start:end].sum(dtype=np.int64))
        try:
            decoded += len(decode_capitals(tokenizer.decode(tokens[start + 1 : end].tolist())).encode())
        except GolfError:
            audit.untrue.append(f"token {start} of {folder} begins a document that is not CaseOps text")
            return
    if decoded:
        share = f"{counted:,} bytes for {decoded:,} of decoded text ({counted / decoded - 1:+.2%})"
        counts_ = f"{share} in {len(bounds)} documents, none on operators"
        audit.in_order.append(f"the byte sidecar of {folder} counts {counts_}")


def check_scored_bytes(target_bytes: np.ndarray, folder: Path, audit: Audit) -> None:
    """Compare the bytes that the logs imply with those of the targets `[N]` that `folder` holds."""
    if audit.scored is None:
        return
    scored_tokens, scored_bytes = audit.scored
    if scored_tokens > target_bytes.size:
        held = target_bytes.size + 1
        audit.unchecked.append(f"the logs' bytes: they scored {scored_tokens:,} tokens, {folder} holds {held:,}")
        return
    real = int(target_bytes[:scored_tokens].sum(dtype=np.int64))
    if abs(scored_bytes / real - 1) <= BYTES_TOLERANCE:
        audit.in_order.append(f"the logs' loss and bits per byte are of the {real:,} bytes that the shards hold")
        return
    more = "too many, a flattered score" if scored_bytes > real else "too few"
    audit.untrue.append(f"the logs scored {scored_bytes:,.0f} bytes, the shards hold {real:,}: {more}")


def check_preparation(folder: Path, audit: Audit) -> None:
    """Add a remark on a preparation script in `folder` whose default leaves validation documents in training."""
    for script in sorted(folder.glob("*.py")):
        if _LEAKING_DEFAULT.search(text_of(script)):
            audit.look_at.append(
                f"{script.name} takes {LEAKING_DOCUMENTS:,} validation documents by default and trains on the other "
                f"{VALIDATION_DOCUMENTS - LEAKING_DOCUMENTS:,}: was it given --val-docs={VALIDATION_DOCUMENTS}?"
            )


def _audit_text(name: str, tokenizer: Tokenizer, path: Path, audit: Audit) -> None:
    documents = first_documents(path)
    # A piece's surface is the text that it was cut from; its name can be a normalised form of that.
    encoded = (tokenizer.encode(encode_capitals(text), out_type="proto") for text in documents)
    counted = sum(sum(count_bytes(piece.surface for piece in one.pieces)) for one in encoded)
    raw = sum(len(text.encode()) for text in documents)
    share = f"{counted:,} bytes for {raw:,} of raw text ({counted / raw - 1:+.2%})"
    part = f"{share} in {len(documents)} documents of {path.name}"
    if counted / raw >= 1 - BYTES_TOLERANCE:
        audit.in_order.append(f"{name} counts {part}")
    else:
        audit.look_at.append(f"{name} counts {part}: it normalises, and its score is worse than the text's")
