"""Byte sidecars: the UTF-8 bytes of the text behind every token of the validation shards, in files beside them.

A tokenizer that rewrites text before it cuts it, as CaseOps does, hides how many bytes a token stands for. Its data
says so itself. Only validation has sidecars, because only scores need bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sentencepiece import SentencePieceProcessor

from golf.errors import GolfError
from golf.training.data.byte_tables import SPACE
from golf.training.data.caseops import ESCAPE, operator_ids
from golf.training.data.shards import open_shard

# Least share of plain pieces with the bytes of their letters. A sidecar of other tokens has under half.
AGREEMENT = 0.9


def read_sidecars(shards: Sequence[Path]) -> np.ndarray:
    """Return the bytes of every token of `shards`, uint16 `[n]`. Raises `GolfError` unless each has one that fits."""
    parts = []
    for shard in shards:
        # <prefix>_000000.bin has <prefix>_bytes_000000.bin.
        sidecar = shard.with_name(re.sub(r"(\d+\.bin)$", r"bytes_\1", shard.name))
        if not sidecar.is_file():
            raise GolfError(
                f"{shard} has no sidecar {sidecar.name}, which data.byte_sidecar=true reads its bytes from: "
                "fetch it or make the data again with golf data tokenize --caseops."
            )
        counts, tokens = open_shard(sidecar), open_shard(shard)
        if counts.size != tokens.size:
            raise GolfError(
                f"{sidecar} holds {counts.size} entries for the {tokens.size} tokens of {shard.name}: "
                "it was cut off or belongs to other shards, so fetch or make both again."
            )
        parts.append(counts)
    return np.concatenate(parts)


def check_sidecar(counts: np.ndarray, tokens: np.ndarray, tokenizer: SentencePieceProcessor) -> None:
    """Raise `GolfError` if `counts` `[n]` cannot be the bytes behind `tokens` `[n]`."""
    for fault in sidecar_faults(counts, tokens, tokenizer):
        raise GolfError(f"The byte sidecar {fault}: fetch or make the validation shards and their sidecars again.")


def sidecar_faults(counts: np.ndarray, tokens: np.ndarray, tokenizer: SentencePieceProcessor) -> list[str]:
    """Return what shows that `counts` `[n]` are not the bytes of the text behind `tokens` `[n]`, a predicate each."""
    faults = []
    operators = operator_ids(tokenizer)
    if operators:
        wrong = counts[np.isin(tokens, list(operators.values())) & ~_escaped(tokens, operators[ESCAPE])]
        if extra := int(wrong.sum(dtype=np.int64)):
            share = extra / max(int(counts.sum(dtype=np.int64)) - extra, 1)
            faults.append(
                f"counts {extra:,} bytes on {np.count_nonzero(wrong):,} case operators, which stand for no text "
                f"({share:+.2%} in all, a flattered score)"
            )
    control = np.array([tokenizer.is_control(i) for i in range(tokenizer.vocab_size())])
    if extra := int(counts[control[tokens]].sum(dtype=np.int64)):
        faults.append(f"counts {extra:,} bytes on BOS and other control tokens, which stand for no text")
    agreement = _agreement(counts, tokens, tokenizer)
    # A normalising tokenizer may have made plain letters of others, as full-width ones; an exact one cannot.
    if agreement < (1.0 if _keeps_text(tokenizer) else AGREEMENT):
        faults.append(f"has the bytes of only {agreement:.1%} of the pieces of plain letters, so it is of other text")
    return faults


def _escaped(tokens: np.ndarray, escape: int) -> np.ndarray:
    """Return bool `[n]`: tokens behind an escape that is not escaped itself."""
    found = np.zeros(tokens.size, dtype=bool)
    # No token is behind the last escape yet, not even the first one.
    last = -2
    for place in np.flatnonzero(tokens[:-1] == escape).tolist():
        if place != last:
            last = place + 1
            found[last] = True
    return found


def _agreement(counts: np.ndarray, tokens: np.ndarray, tokenizer: SentencePieceProcessor) -> float:
    """Return the share of the tokens of ASCII letters without a space whose count is their number of letters."""
    pieces = [tokenizer.id_to_piece(i) for i in range(tokenizer.vocab_size())]
    expected = np.array([len(p) if p.isascii() and p.isalpha() and SPACE not in p else 0 for p in pieces])[tokens]
    plain = expected > 0
    return float((counts[plain] == expected[plain]).mean()) if plain.any() else 1.0


def _keeps_text(tokenizer: SentencePieceProcessor) -> bool:
    """Tell whether the tokenizer cuts text as it is, without normalisation or spaces of its own."""
    # Things that normalisation changes: outer and double spaces, a ligature, a full-width letter, a tab.
    probe = " \ufb01  \uff21\t "
    return bool(tokenizer.normalize(probe).replace(SPACE, " ") == probe)
