"""The data of a run: training shards, validation tokens and the bytes behind them, and their fingerprint."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from golf.challenge import BYTE_VOCABULARY
from golf.errors import GolfError
from golf.paths import resolve
from golf.settings.config import Config, DataConfig, eval_seq_len
from golf.training.data.byte_tables import byte_tables, load_tokenizer
from golf.training.data.byte_units import byte_tokenizer, check_bytes
from golf.training.data.caseops import decode_capitals, operator_ids
from golf.training.data.documents import BOS_ID
from golf.training.data.loader import check_tokens
from golf.training.data.shards import find_shards, open_shard
from golf.training.data.sidecar import check_sidecar, read_sidecars

if TYPE_CHECKING:
    from golf.training.data.byte_tables import Tokenizer

# Places that the fingerprint reads of a training shard: reading all of it at every start would take too long.
PROBE_TOKENS = 512
PROBES_PER_SHARD = 8
MOST_DECODED = 5_000_000  # validation tokens whose text is read at every start, in about a second a million
MOST_ENCODED, MOST_OTHERS = 20_000, 0.005  # validation tokens that are encoded again, and share that may be others
EMBEDDED = {  # places of the built-in corpora by data.built_from: shards and tokenizer, by the size of the vocabulary
    "pydocs": ("data/datasets/pydocs_sp{}", "data/tokenizers/pydocs_{}_bpe.model"),
    "pydocs_caseops": ("data/datasets/pydocs_sp{}_caseops", "data/tokenizers/pydocs_{}_bpe_caseops.model"),
    "pydocs_bytes": ("data/datasets/pydocs_bytes", ""),
}


@dataclass(frozen=True)
class Dataset:
    """The data of a run, opened and checked."""

    train_files: list[Path]
    train: list[np.ndarray]  # uint16 tokens, memory-mapped
    validation: np.ndarray  # uint16 [N + 1], the tokens that scores read
    target_bytes: np.ndarray  # [validation - 1], UTF-8 bytes of the text behind every target
    fingerprint: str  # equal for equal validation tokens, pieces, training shards and sidecars
    text_digest: str | None = None  # equal for equal scored text, whatever tokenizer cut it; only with `eval.documents`


def embedded_places(data: DataConfig) -> tuple[str, str]:
    """Return the folder of shards and the tokenizer of the embedded corpus of `data`; empty if it is none."""
    folder, tokenizer = EMBEDDED.get(data.built_from or "", ("", ""))
    return folder.format(data.vocab_size), tokenizer.format(data.vocab_size)


def is_unbuilt(data: DataConfig) -> bool:
    """Tell whether `data` is an embedded corpus whose files are missing."""
    has_tokenizer = data.units == "bytes" or resolve(data.tokenizer_path).is_file()
    return data.built_from is not None and not (resolve(data.path).is_dir() and has_tokenizer)


def _build(data: DataConfig) -> None:
    if data.built_from not in EMBEDDED:
        raise GolfError(f"data.built_from={data.built_from} is not known: choose {' or '.join(EMBEDDED)}.")
    _refuse_foreign_places(data)
    from golf.training.data import pydocs  # imports the packages' metadata only where it is needed

    operators = data.built_from == "pydocs_caseops"
    tokenizer_path = resolve(data.tokenizer_path) if data.tokenizer_path else None
    pydocs.build(resolve(data.path), tokenizer_path, data.vocab_size, with_operators=operators)


def _refuse_foreign_places(data: DataConfig) -> None:
    """Raise `GolfError` unless the embedded corpus is wanted in its own place.

    Whoever gives a path means a text of their own: building ours there would score another text than they believe.
    """
    given = {"data.path": data.path, "data.tokenizer_path": data.tokenizer_path}
    for (key, path), own in zip(given.items(), embedded_places(data), strict=True):
        if path != own:
            what = "does not exist" if not resolve(path).exists() else "is not the embedded text's"
            raise GolfError(
                f"{key}={path} {what}, and data={data.name} is built in its own place only: mend the path, "
                "choose data=own for your own text, or leave both paths out."
            )


def open_dataset(cfg: Config) -> Dataset:
    """Open and check the data of `cfg`, building an embedded corpus on first use.

    Raises `GolfError` naming the file that is missing, foreign or different.
    """
    data, folder = cfg.data, resolve(cfg.data.path)
    if is_unbuilt(data):
        _build(data)
    if cfg.model.vocab_size != data.vocab_size:
        raise GolfError(
            f"model.vocab_size={cfg.model.vocab_size}, but the data has data.vocab_size={data.vocab_size}: "
            "leave model.vocab_size alone, it follows the data."
        )
    tokenizer = open_tokenizer(data)
    train_files = find_shards(folder, data.train_files, "train")
    if both := set(train_files).intersection(find_shards(folder, data.val_files, "val")):
        raise GolfError(
            f"data.train_files and data.val_files both name {min(both).name}: a score on text of the training is none."
        )
    train = [open_shard(path) for path in train_files]
    validation = validation_tokens(data)
    # Taken over the whole split: it must not depend on the sequence length by which scores cut it.
    found = _fingerprint(tokenizer, train_files, train, validation, _checked_sidecar(data, tokenizer, validation))
    if data.fingerprint not in (None, found):
        raise GolfError(
            f"The data in {folder} has fingerprint {found}, but data.fingerprint is {data.fingerprint}: scores on it "
            "would not compare. Remove the folder and its tokenizer to get the expected data, or accept this one "
            f"with data.fingerprint={found}."
        )
    scored = scored_tokens(cfg, validation)
    if data.units != "bytes" and validation.max() < BYTE_VOCABULARY < data.vocab_size:
        # A tokenizer would read bytes as pieces, and count their bytes wrong.
        raise GolfError(f"The validation shards in {folder} hold bytes and no pieces: set data.units=bytes.")
    if data.name == "own" and data.fingerprint is None and data.units != "bytes":
        _refuse_other_tokenizer(tokenizer, validation[:MOST_ENCODED].tolist(), data, found)
    target_bytes = bytes_of_targets(data, tokenizer, scored)
    # Whole sequences end somewhere else in the text for every tokenizer and sequence length.
    digest = text_digest(tokenizer, scored, target_bytes) if cfg.eval.documents else None
    return Dataset(train_files, train, scored, target_bytes, found, digest)


def _refuse_other_tokenizer(tokenizer: Tokenizer, tokens: list[int], data: DataConfig, fingerprint: str) -> None:
    """Raise `GolfError` if `tokens` are not those that the tokenizer makes of their text: it counts wrong bytes."""
    pieces = [token for token in tokens if not tokenizer.is_control(token)]
    others = Counter(pieces) - Counter(tokenizer.encode(tokenizer.decode(pieces)))
    # The last word may be cut.
    if others.total() > 4 + MOST_OTHERS * len(pieces):
        raise GolfError(
            f"{data.tokenizer_path} makes other tokens of the validation text than {data.path} holds: give the "
            f"tokenizer that wrote the shards or, if it is that one, accept them with data.fingerprint={fingerprint}."
        )


def open_tokenizer(data: DataConfig) -> Tokenizer:
    """Return the tokenizer of `data`. Raises `GolfError` for a SentencePiece model that does not fit."""
    if data.units == "bytes":
        return byte_tokenizer()
    return load_tokenizer(resolve(data.tokenizer_path), data.vocab_size)


def validation_tokens(data: DataConfig) -> np.ndarray:
    """Return the whole validation split, uint16. Raises `GolfError` for tokens that `data` cannot have."""
    # Only these are checked here. Reading all training tokens takes too long, so loaders check each batch.
    tokens = np.concatenate([open_shard(path) for path in find_shards(resolve(data.path), data.val_files, "val")])
    if data.units == "bytes":
        check_bytes(tokens)
    else:
        check_tokens(tokens, data.vocab_size, "validation")
    return tokens


def bytes_of_targets(data: DataConfig, tokenizer: Tokenizer, validation: np.ndarray) -> np.ndarray:
    """Return the UTF-8 bytes `[N]` of the text behind every target of `validation` `[N + 1]`, the split's first.

    They are those of the sidecar or, without `data.byte_sidecar`, of the tokenizer's pieces.
    """
    if data.byte_sidecar:
        return read_sidecars(find_shards(resolve(data.path), data.val_files, "val"))[1 : validation.size]
    return byte_tables(tokenizer, data.vocab_size).of(validation[:-1], validation[1:])


def text_digest(tokenizer: Tokenizer, tokens: np.ndarray, target_bytes: np.ndarray) -> str | None:
    """Return 16 hex digits over the text behind `tokens` `[N + 1]`, which are equal for every tokenizer of that text.

    Returns None if the text does not have the bytes that `target_bytes` `[N]` count: a piece of it is not scored, or
    the tokenizer has changed it. More than `MOST_DECODED` tokens are not read.
    """
    if tokens.size > MOST_DECODED:
        return None
    documents = np.split(tokens, np.flatnonzero(tokens == BOS_ID)[1:])
    texts = tokenizer.decode([document.tolist() for document in documents])
    try:
        if operator_ids(tokenizer):
            texts = [decode_capitals(text) for text in texts]
    except GolfError:
        # The last document may be cut within an operator's word.
        return None
    content = [text.encode() for text in texts]
    if sum(map(len, content)) != int(target_bytes.sum(dtype=np.int64)):
        return None
    digest = hashlib.blake2b(digest_size=8)
    for text in content:
        # The length marks where a document ends.
        digest.update(f"{len(text)}\n".encode() + text)
    return digest.hexdigest()


def _checked_sidecar(data: DataConfig, tokenizer: Tokenizer, validation: np.ndarray) -> np.ndarray | None:
    """Return the sidecar of the whole split, None for data that has none. Raises `GolfError` if it does not fit."""
    if not data.byte_sidecar:
        if operator_ids(tokenizer):
            raise GolfError(
                f"{data.tokenizer_path} writes capitals as CaseOps operators, which stand for no text: set "
                "data.byte_sidecar=true, so that bits per byte count the bytes of the text."
            )
        return None
    sidecar = read_sidecars(find_shards(resolve(data.path), data.val_files, "val"))
    check_sidecar(sidecar, validation, tokenizer)
    return sidecar


def scored_tokens(cfg: Config, tokens: np.ndarray) -> np.ndarray:
    """Return the validation tokens that are scored: all if `eval.documents`, else a prefix.

    The prefix is the longest one of whole sequences, plus one target.
    """
    if cfg.eval.documents:
        if tokens.size < 2:
            raise GolfError(f"The validation split has {tokens.size} tokens, none of which can be predicted.")
        return tokens
    seq_len = eval_seq_len(cfg)
    if (usable := (tokens.size - 1) // seq_len * seq_len) <= 0:
        raise GolfError(f"The validation split has {tokens.size} tokens, less than one sequence of {seq_len} + 1.")
    return tokens[: usable + 1]


def _fingerprint(
    tokenizer: Tokenizer,
    train_files: list[Path],
    train: list[np.ndarray],
    validation: np.ndarray,
    sidecar: np.ndarray | None,
) -> str:
    """Return 16 hex digits over validation tokens, pieces, sidecar, and name, length and probes of the training shards.

    Data without a sidecar keeps the digits that it had before there were any.
    """
    digest = hashlib.blake2b(digest_size=8)
    for i in range(tokenizer.vocab_size()):
        # The zero byte marks where a piece ends: other pieces of the same letters are another tokenizer.
        digest.update(tokenizer.id_to_piece(i).encode() + b"\0")
    digest.update(validation.tobytes())
    if sidecar is not None:
        digest.update(b"sidecar" + sidecar.tobytes())
    for path, shard in zip(train_files, train, strict=True):
        digest.update(f"{path.name} {shard.size}\n".encode())
        for start in np.linspace(0, max(shard.size - PROBE_TOKENS, 0), PROBES_PER_SHARD, dtype=np.int64):
            digest.update(shard[start : start + PROBE_TOKENS].tobytes())
    return digest.hexdigest()
