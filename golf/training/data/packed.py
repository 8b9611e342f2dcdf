"""Packed rows: documents end to end in one long row, and where each begins, so that attention can stop at their ends.

A micro-batch is one row of `local_tokens` inputs. The model cuts a long document into pieces, each without the context
of the one before. Sources: openai/parameter-golf record 2026-04-10 and PR #1523 for the sequential order; the order
shuffled by document is this project's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from golf.errors import GolfError
from golf.training.data.documents import BOS_ID
from golf.training.data.loader import check_tokens
from golf.training.ranks import ALONE, Ranks

DOCUMENT_TOKENS = 256  # mean length of a row's documents below which flash attention is not prepared for them
FEW_DOCUMENTS = 64  # short rows may hold so many, however short they are


def most_documents(tokens: int) -> int:
    """Return the most documents in a row of `tokens` for which flash attention is prepared."""
    return max(FEW_DOCUMENTS, tokens // DOCUMENT_TOKENS)


def most_pieces(tokens: int, longest: int) -> int:
    """Return the most pieces of at most `longest` tokens in a row for which flash attention is prepared.

    A kernel starts blocks for every entry of its table and allocates for each of them, also for those without a token.
    """
    # Each piece begins with a document, or `longest` tokens behind the piece before.
    return most_documents(tokens) + tokens // longest


def document_begins(tokens: np.ndarray) -> np.ndarray:
    """Return where the documents of `tokens` `[n]` begin, int64: at the first token, and at every BOS."""
    begins = np.flatnonzero(tokens == BOS_ID)
    return begins if begins.size and begins[0] == 0 else np.concatenate([[0], begins])


def document_starts(ids: np.ndarray, longest: int) -> np.ndarray:
    """Return where the pieces of documents in a row `ids` `[n]` begin, int32, ending with n.

    A piece begins at the row's start, at every BOS, and every `longest` tokens of a document.
    """
    begins = document_begins(ids)
    ends = np.append(begins[1:], ids.size)
    pieces = [np.arange(begin, end, longest) for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
    return np.append(np.concatenate(pieces), ids.size).astype(np.int32)


class Rows(Protocol):
    """An endless list of rows."""

    def read(self, index: int) -> np.ndarray:
        """Return row `index`: its inputs and the last target, uint16 `[local_tokens + 1]`."""


class SequentialRows:
    """Rows in the order of the shards, as published.

    Each shard is read from its first BOS in spans of `local_tokens + 1` tokens. Its rest, less than a span, is left
    out, and so is one target in a span: the first token of the next span is an input only.
    """

    def __init__(self, shards: Sequence[np.ndarray], local_tokens: int):
        self.shards, self.span = shards, local_tokens + 1
        self.first = [_first_bos(i, shard) for i, shard in enumerate(shards)]
        counts = [(shard.size - first) // self.span for shard, first in zip(shards, self.first, strict=True)]
        self.ends = np.cumsum(counts)
        if not self.ends[-1]:
            raise GolfError(
                f"None of the {len(shards)} training shards holds a row of {local_tokens} tokens and its last target: "
                "lower data.train_batch_tokens, raise data.micro_batches or make longer shards."
            )

    def read(self, index: int) -> np.ndarray:
        """Return row `index`; after the last row of the last shard the first row follows."""
        index %= int(self.ends[-1])
        shard = int(np.searchsorted(self.ends, index, side="right"))
        start = self.first[shard] + (index - (int(self.ends[shard - 1]) if shard else 0)) * self.span
        return self.shards[shard][start : start + self.span]


class ShuffledRows:
    """Rows of whole documents in random order: in every pass the shards, and within each shard its documents.

    Every token of every shard is a target once a pass. The order follows `seed` alone.
    """

    def __init__(self, shards: Sequence[np.ndarray], local_tokens: int, seed: int):
        self.shards = [shard for shard in shards if shard.size]
        self.local_tokens, self.seed = local_tokens, seed
        for i, shard in enumerate(shards):
            # Called for its error alone: without BOS a shard would be one document.
            _first_bos(i, shard)
        self.total = sum(shard.size for shard in self.shards)
        self._orders: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}

    def read(self, index: int) -> np.ndarray:
        """Return row `index`, whose last target is the first input of the next one."""
        parts, place, missing = [], index * self.local_tokens, self.local_tokens + 1
        while missing:
            part = self._read_some(place, missing)
            parts.append(part)
            place, missing = place + part.size, missing - part.size
        return np.concatenate(parts)

    def _read_some(self, place: int, most: int) -> np.ndarray:
        """Return up to `most` tokens from `place` of the endless text: those of one document."""
        number, place = divmod(place, self.total)
        # A seed for each pass, so that any row can be read without drawing those before it.
        for shard in np.random.default_rng([self.seed, number]).permutation(len(self.shards)).tolist():
            if place < self.shards[shard].size:
                break
            place -= self.shards[shard].size
        starts, ends = self._order(number, shard)
        document = int(np.searchsorted(ends, place, side="right"))
        begin = int(starts[document]) + place - (int(ends[document - 1]) if document else 0)
        return self.shards[shard][begin : begin + min(most, int(ends[document]) - place)]

    def _order(self, number: int, shard: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the shuffled documents of a shard in pass `number`: where each begins, and their summed sizes."""
        if (number, shard) not in self._orders:
            # A row spans few shards, so that the last two are enough to keep.
            while len(self._orders) > 1:
                del self._orders[next(iter(self._orders))]
            tokens = self.shards[shard]
            # The first may be the end of a document that began in the shard before.
            starts = document_begins(tokens)
            sizes = np.diff(np.append(starts, tokens.size))
            order = self.arranged(number, shard, starts, sizes)
            self._orders[number, shard] = starts[order], np.cumsum(sizes[order])
        return self._orders[number, shard]

    def arranged(self, number: int, shard: int, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return the places of a shard's documents in pass `number` in order, int64 `[n]`."""
        return np.random.default_rng([self.seed, number, shard]).permutation(starts.size)


class PackedLoader:
    """Micro-batches of one row for one rank.

    Row i of the list belongs to rank i mod W, so that a step does not depend on the number of ranks. With `is_limited`,
    rows of more than `most_documents` documents are refused.
    """

    def __init__(self, rows: Rows, *, vocab_size: int, ranks: Ranks = ALONE, is_limited: bool = False):
        self.rows, self.vocab_size, self.is_limited = rows, vocab_size, is_limited
        self.world_size, self.next_row = ranks.world_size, ranks.rank

    def next_batch(self) -> tuple[Tensor, Tensor]:
        """Return inputs and targets, `[1, local_tokens]` int64 each, on the CPU."""
        tokens = self.rows.read(self.next_row)
        self.next_row += self.world_size
        check_tokens(tokens, self.vocab_size, "training")
        if self.is_limited:
            _check_documents(tokens[:-1])
        ids = torch.from_numpy(tokens.astype(np.int64))
        # Compiled code is specialised for strides, and those of a row cut from one of T + 1 tokens would differ.
        return ids[:-1][None], ids[1:][None]

    def skip(self, batches: int) -> None:
        """Skip `batches` micro-batches without reading them."""
        self.next_row += batches * self.world_size


def _check_documents(ids: np.ndarray) -> None:
    documents, most = document_begins(ids).size, most_documents(ids.size)
    if documents > most:
        raise GolfError(
            f"A row of {ids.size} training tokens holds {documents} documents, more than the {most} that flash "
            "attention is prepared for: use model.attention=sdpa, which is slower."
        )


def _first_bos(index: int, shard: np.ndarray) -> int:
    """Return the first token of `shard` that begins a document. Raises `GolfError` if there is none."""
    # In parts, because the first BOS is near the start and the rest of the shard need not be read for it.
    for start in range(0, shard.size, 1 << 20):
        if (found := np.flatnonzero(shard[start : start + (1 << 20)] == BOS_ID)).size:
            return start + int(found[0])
    raise GolfError(
        f"Training shard {index} holds no BOS token ({BOS_ID}), so its documents cannot be told apart: make it again "
        "with golf data tokenize, or choose another data.loader."
    )
