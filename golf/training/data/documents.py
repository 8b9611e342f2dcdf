"""Documents to training data: a SentencePiece tokenizer, then shards in the field's format."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import sentencepiece

from golf.errors import GolfError
from golf.training.data.byte_tables import SPACE, byte_tables
from golf.training.data.caseops import FUSED, OPERATORS, count_bytes, encode_capitals, operator_ids
from golf.training.data.shards import write_shard

BOS_ID = 1
SHARD_TOKENS = 100_000_000
ENCODED_TOGETHER = 1024  # texts
# Bytes of one token that a sidecar can hold, whose entries are uint16.
MOST_BYTES = 65_535


def train_tokenizer(
    texts: Sequence[str], vocab_size: int, *, with_operators: bool = False, fused: bool = False
) -> bytes:
    """Train a BPE model of `vocab_size` pieces with byte fallback that reproduces its input exactly.

    `with_operators` is for texts that `encode_capitals` has written: its operators are then the pieces 4 to 7, and no
    other piece holds one. With `fused` a space and the operator behind it are one of the pieces 8 to 10, and neither a
    piece of its own.

    As the field's tokenizers (pad 0, BOS 1, EOS 2, unknown 3, digits split, no dummy prefix), but without
    normalisation, so that line ends and runs of spaces survive and decoded bytes equal the text's. The same texts
    give the same bytes on every machine: reading from memory keeps paths out of the model, and the number of
    threads, which SentencePiece writes down, is fixed.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(line for text in texts for line in text.splitlines(keepends=True)),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            byte_fallback=True,
            split_digits=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=False,
            # Rare characters get no piece of their own, because byte fallback spells them.
            character_coverage=0.999,
            # SentencePiece leaves longer lines out, from 4,192 bytes on by default.
            max_sentence_length=1 << 20,
            pad_id=0,
            bos_id=BOS_ID,
            eos_id=2,
            unk_id=3,
            user_defined_symbols=list(OPERATORS) * with_operators + FUSED * fused,
            # Where an operator follows every space, a space of its own would have no piece, and come back as bytes.
            required_chars=SPACE * fused,
            num_threads=4,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        remedy = _remedy(str(error))
        raise GolfError(f"SentencePiece cannot make {vocab_size} pieces from this text: {remedy}.") from error
    return model.getvalue()


def _remedy(said: str) -> str:
    """Return what to do about a number of pieces that SentencePiece has refused with the words `said`."""
    # "… a value <= 430." is the most pieces that the text gives, "… required_chars. 100 vs 320." the least it needs.
    if most := re.search(r"<= (\d+)", said):
        return f"choose --vocab-size {most[1]} or less, or give more text"
    if least := re.search(r"required_chars\. -?\d+ vs (\d+)", said):
        return f"choose --vocab-size {least[1]} or more, which its characters and the 256 bytes need"
    return "choose a larger --vocab-size"


def encode_documents(tokenizer: sentencepiece.SentencePieceProcessor, texts: Iterable[str]) -> Iterator[np.ndarray]:
    """Yield the token ids of every text, uint16, each with BOS in front and no EOS.

    A tokenizer with CaseOps operators gets the texts encoded.
    """
    written = encode_capitals if operator_ids(tokenizer) else str
    remaining = iter(texts)
    while group := [written(text) for text in itertools.islice(remaining, ENCODED_TOGETHER)]:
        for text, ids in zip(group, tokenizer.encode(group), strict=True):
            yield np.array([BOS_ID, *(_with_sign(tokenizer, text) if SPACE in text else ids)], dtype=np.uint16)


def _with_sign(tokenizer: sentencepiece.SentencePieceProcessor, text: str) -> list[int]:
    """Return the token ids of a text that holds U+2581, SentencePiece's sign for a space, with its bytes as tokens.

    The tokenizer would take it for a space. Raises `GolfError` if it has no tokens for bytes or adds spaces.
    """
    sign = [tokenizer.piece_to_id(f"<0x{byte:02X}>") for byte in SPACE.encode()]
    if tokenizer.decode([*tokenizer.encode("a"), *sign, *tokenizer.encode("b")]) != f"a{SPACE}b":
        raise GolfError(
            "The text holds U+2581, which this tokenizer takes for a space: replace it there, or leave --tokenizer out."
        )
    first, *parts = tokenizer.encode(text.split(SPACE))
    return [*first, *(id for part in parts for id in (*sign, *part))]


def encode_with_bytes(
    tokenizer: sentencepiece.SentencePieceProcessor, texts: Iterable[str]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield what `encode_documents` yields, and the UTF-8 bytes of the text behind every token, uint16; BOS has none.

    Characters that normalisation removes at a text's ends are in no token, so the bytes add up to the text's or less.
    """
    written = encode_capitals if operator_ids(tokenizer) else str
    for number, text in enumerate(texts):
        first, *parts = tokenizer.encode(written(text).split(SPACE), out_type="proto")
        surfaces = [piece.surface for piece in first.pieces]
        for part in parts:
            # Each token of U+2581 is one byte, as any letter is.
            surfaces += ["b"] * len(SPACE.encode()) + [piece.surface for piece in part.pieces]
        counts = [0, *count_bytes(surfaces)]
        if max(counts) > MOST_BYTES:
            raise GolfError(
                f"A token of document {number} of the validation split stands for {max(counts)} bytes of text, but a "
                f"sidecar can hold {MOST_BYTES}: shorten the run of spaces in it."
            )
        (tokens,) = encode_documents(tokenizer, [text])
        yield tokens, np.array(counts, dtype=np.uint16)


class ShardWriter:
    """A writer of documents end to end as `<folder>/<prefix>_000000.bin`, …. Documents may straddle shards."""

    def __init__(self, folder: Path, prefix: str, shard_tokens: int = SHARD_TOKENS):
        self.folder, self.prefix, self.shard_tokens = folder, prefix, shard_tokens
        self.total_tokens = self.shards = self._pending_tokens = 0
        self._pending: list[np.ndarray] = []

    def add(self, tokens: np.ndarray) -> None:
        self.total_tokens += tokens.size
        while self._pending_tokens + tokens.size >= self.shard_tokens:
            room = self.shard_tokens - self._pending_tokens
            self._pending.append(tokens[:room])
            self._flush()
            tokens = tokens[room:]
        self._pending.append(tokens)
        self._pending_tokens += tokens.size

    def close(self) -> None:
        """Write the last, partly filled shard."""
        if self._pending_tokens:
            self._flush()

    def _flush(self) -> None:
        write_shard(self.folder / f"{self.prefix}_{self.shards:06d}.bin", np.concatenate(self._pending))
        self._pending, self._pending_tokens = [], 0
        self.shards += 1


def write_splits(
    folder: Path,
    prefix: str,
    tokenizer: sentencepiece.SentencePieceProcessor,
    train_texts: Iterable[str],
    val_texts: Iterable[str],
    *,
    with_sidecar: bool,
) -> tuple[int, int]:
    """Write both splits into `folder`, which has to exist. Returns the tokens of either.

    `with_sidecar` writes beside each validation shard `<prefix>_val_000000.bin` the bytes of its tokens. Raises
    `GolfError` for a tokenizer whose pieces have more bytes than the validation text.
    """
    train, val, sidecar = (ShardWriter(folder, f"{prefix}_{part}") for part in ("train", "val", "val_bytes"))
    for tokens in encode_documents(tokenizer, train_texts):
        train.add(tokens)
    if with_sidecar:
        for tokens, counts in encode_with_bytes(tokenizer, val_texts):
            val.add(tokens)
            sidecar.add(counts)
    else:
        _add_counted(val, tokenizer, val_texts)
    for writer in (train, val, sidecar):
        writer.close()
    return train.total_tokens, val.total_tokens


def _add_counted(val: ShardWriter, tokenizer: sentencepiece.SentencePieceProcessor, texts: Iterable[str]) -> None:
    """Write the validation split, and compare the bytes of its pieces with those of its texts."""
    (texts, originals), tables, extra = itertools.tee(texts), byte_tables(tokenizer, 0), 0
    for tokens, text in zip(encode_documents(tokenizer, texts), originals, strict=True):
        val.add(tokens)
        # The BOS of the next document is the last target of each.
        extra += int(tables.of(tokens, np.append(tokens[1:], tokens[0])).sum(dtype=np.int64)) - len(text.encode())
    if extra > 0:
        raise GolfError(
            f"The tokenizer counts {extra} bytes more than the validation text has, so bits per byte would be too low: "
            "give one that adds no text, or leave --tokenizer out."
        )
