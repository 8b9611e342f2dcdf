"""The data of a run: training shards, validation tokens, byte tables, and their fingerprint."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sentencepiece

from golf.errors import GolfError
from golf.paths import resolve
from golf.settings.config import Config, DataConfig, eval_seq_len
from golf.training.data.byte_tables import ByteTables, byte_tables, load_tokenizer
from golf.training.data.shards import find_shards, open_shard

PROBE_TOKENS = 512
PROBES_PER_SHARD = 8


@dataclass(frozen=True)
class Dataset:
    train_files: list[Path]
    train: list[np.ndarray]  # uint16 tokens, memory-mapped
    validation: np.ndarray  # uint16 [k · eval_seq_len + 1]: whole sequences and the last target
    tables: ByteTables
    fingerprint: str  # equal for equal validation tokens, pieces and training shards


def is_unbuilt(data: DataConfig) -> bool:
    """Tell whether `data` is an embedded corpus whose files are missing."""
    return data.built_from is not None and not (resolve(data.path).is_dir() and resolve(data.tokenizer_path).is_file())


def _build(data: DataConfig) -> None:
    if data.built_from != "pydocs":
        raise GolfError(f"data.built_from={data.built_from} is not known: the only built-in corpus is pydocs.")
    from golf.training.data import pydocs  # imports the packages' metadata only where it is needed

    pydocs.build(resolve(data.path), resolve(data.tokenizer_path), data.vocab_size)


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
    tokenizer = load_tokenizer(resolve(data.tokenizer_path), data.vocab_size)
    train_files = find_shards(folder, data.train_files, "train")
    train = [open_shard(path) for path in train_files]
    validation = validation_tokens(data)
    found = _fingerprint(tokenizer, train_files, train, validation)
    if data.fingerprint not in (None, found):
        raise GolfError(
            f"The data in {folder} has fingerprint {found}, but data.fingerprint is {data.fingerprint}: scores on it "
            "would not compare. Remove the folder and its tokenizer to get the expected data, or accept this one "
            f"with data.fingerprint={found}."
        )
    whole = whole_sequences(validation, eval_seq_len(cfg))
    return Dataset(train_files, train, whole, byte_tables(tokenizer, data.vocab_size), found)


def validation_tokens(data: DataConfig) -> np.ndarray:
    """Return the whole validation split, uint16. Raises `GolfError` for tokens outside the vocabulary."""
    files = find_shards(resolve(data.path), data.val_files, "val")
    tokens = np.concatenate([open_shard(path) for path in files])
    _check_range(tokens, data.vocab_size)
    return tokens


def whole_sequences(tokens: np.ndarray, seq_len: int) -> np.ndarray:
    """Cut `tokens` to whole sequences of `seq_len`, plus one token as the last target."""
    if (usable := (tokens.size - 1) // seq_len * seq_len) <= 0:
        raise GolfError(f"The validation split has {tokens.size} tokens, less than one sequence of {seq_len} + 1.")
    return tokens[: usable + 1]


def _check_range(tokens: np.ndarray, vocab_size: int) -> None:
    if tokens.size and (largest := int(tokens.max())) >= vocab_size:
        raise GolfError(
            f"The validation shards hold token {largest}, but the vocabulary ends at {vocab_size - 1}: "
            "use the tokenizer they were made with and set data.vocab_size to its size."
        )


def _fingerprint(
    tokenizer: sentencepiece.SentencePieceProcessor,
    train_files: list[Path],
    train: list[np.ndarray],
    validation: np.ndarray,
) -> str:
    """Return 16 hex digits over validation tokens, pieces, and name, length and probes of the training shards."""
    digest = hashlib.blake2b(digest_size=8)
    for i in range(tokenizer.vocab_size()):
        digest.update(tokenizer.id_to_piece(i).encode() + b"\0")
    digest.update(validation.tobytes())
    for path, shard in zip(train_files, train, strict=True):
        digest.update(f"{path.name} {shard.size}\n".encode())
        for start in np.linspace(0, max(shard.size - PROBE_TOKENS, 0), PROBES_PER_SHARD, dtype=np.int64):
            digest.update(shard[start : start + PROBE_TOKENS].tobytes())
    return digest.hexdigest()
