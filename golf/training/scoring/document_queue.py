"""The order in which documents are scored: batches of similar length in queues, with pauses after some of them.

It follows from the documents' lengths alone, so it is the same on every rank and knows nothing of the scores.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from golf.training.data.packed import document_begins


class QueuedBatch(NamedTuple):
    """Documents that are scored side by side."""

    place: int  # place in the queue, from 0
    documents: np.ndarray  # [n, 2]: start and number of targets, short ones first


Queue = Sequence[QueuedBatch]  # in the order of scoring
Lane = list[QueuedBatch]  # batches that are scored one after the other
Segment = list[Lane]  # lanes between two pauses, side by side


def list_documents(tokens: np.ndarray) -> np.ndarray:
    """Return the documents `[n, 2]` of `tokens` `[N + 1]` as (start, targets), which cover each of the N targets once.

    The BOS that begins the next document is the last target of the one before. Text before the first BOS is a
    document too.
    """
    starts = document_begins(tokens[:-1])
    return np.stack((starts, np.diff(starts, append=tokens.size - 1)), axis=1)


def document_batches(documents: np.ndarray, batch_docs: int) -> list[QueuedBatch]:
    """Return `documents` `[n, 2]` in batches of similar lengths, long documents first; the first batch may be short."""
    # Documents of one batch end at about the same chunk, so that it stays full for nearly as long as it runs.
    ordered = documents[np.argsort(documents[:, 1], kind="stable")]
    batches = [ordered[i : i + batch_docs] for i in range(0, len(ordered), batch_docs)]
    return [QueuedBatch(place, batch) for place, batch in enumerate(reversed(batches))]


def forwarded_tokens(batch: QueuedBatch, chunk_tokens: int, seq_len: int) -> int:
    """Return the tokens that are read of the batch's longest document, chunk after chunk."""
    chunks = -(-int(batch.documents[-1, 1]) // chunk_tokens)
    return int(np.minimum(np.arange(1, chunks + 1) * chunk_tokens, seq_len).sum())


def plan_segments(queue: Queue, seconds: Sequence[int], lanes: int, pauses: Sequence[int]) -> list[Segment]:
    """Return the batches of `queue` in `lanes` lanes, cut at pauses.

    A lane takes the next batch as soon as it is free, by `seconds` in any unit. Once `pauses[k]` documents are scored,
    no lane takes another batch, and the next segment begins when all have ended theirs.
    """
    segments, left, wanted, scored = [], list(zip(queue, seconds, strict=True))[::-1], list(pauses), 0
    while left:
        segment: Segment = [[] for _ in range(lanes)]
        free: list[tuple[int, int]] = [(0, lane) for lane in range(lanes)]
        running: list[tuple[int, int, int]] = []  # end, lane, documents
        while left and (not wanted or scored < wanted[0]):
            if not free:
                end, lane, documents = heapq.heappop(running)
                scored += documents
                free.append((end, lane))
                continue
            now, lane = free.pop(0)
            batch, cost = left.pop()
            segment[lane].append(batch)
            heapq.heappush(running, (now + cost, lane, len(batch.documents)))
        scored += sum(documents for *_, documents in running)
        if wanted:
            wanted.pop(0)
        segments.append(segment)
    return segments


def pause_after(count: int, documents: int) -> list[int]:
    """Return the numbers of documents on which `count` phases train, `documents` in the last."""
    return [documents * (k + 1) // count for k in range(count)]
