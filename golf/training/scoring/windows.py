"""Sliding windows as plain numbers, the targets that each scores, and windows in batches of one shape.

A split of N + 1 tokens has the targets 0 … N-1; target i is token i + 1, predicted from the tokens up to i. A window
`(start, first, end)` reads the tokens start … end-1 and scores the targets first … end-1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np


def list_windows(targets: int, seq_len: int, stride: int) -> np.ndarray:
    """Return the windows `[n, 3]` of (start, first scored, end) over `targets` targets, in order; 0 < stride ≤ seq_len.

    The first window scores all that it reads; each other one leaves out its first seq_len - stride positions. Starts
    with nothing new to score are dropped, so that each target is scored once. The public scripts kept them until their
    record 2026-04-01_Vocab4096_MLPMult4_WD085, and scored the last targets again.
    """
    # Later starts would find no target that is not scored yet.
    start = np.arange(0, max(targets - (seq_len - stride), 1), stride)
    end = np.minimum(start + seq_len, targets)
    first = start + seq_len - stride
    first[:1] = 0
    return np.stack((start, first, end), axis=1)


def split_first(windows: np.ndarray, stride: int) -> np.ndarray:
    """Return windows that score the same targets, at most `stride` each: the first window is listed once for each part.

    All windows then have one shape and one compiled graph, at the price of seq_len / stride - 1 forward passes.
    """
    if not windows.size or windows[0, 0] > 0:
        return windows
    first = np.arange(windows[0, 1], windows[0, 2], stride)
    end = np.minimum(first + stride, windows[0, 2])
    return np.concatenate((np.stack((np.zeros_like(first), first, end), axis=1), windows[1:]))


@dataclass(frozen=True)
class Batch:
    """Windows of one forward pass. Padding rows and columns repeat others and are not `scored`."""

    ids: np.ndarray  # int64 [B, T], input tokens
    positions: np.ndarray  # int64 [B, S], positions in `ids` at which the scored targets are predicted
    targets: np.ndarray  # int64 [B, S], tokens that are predicted
    indices: np.ndarray  # int64 [B, S], indices of the targets in the split
    scored: np.ndarray  # bool [B, S]


def batches(tokens: np.ndarray, windows: np.ndarray, *, seq_len: int, width: int, batch_seqs: int) -> Iterator[Batch]:
    """Yield `windows` `[n, 3]` over `tokens` `[N + 1]` in batches of `batch_seqs`; each scores at most `width` targets.

    Padding follows a window that is cut off: a causal model does not see it.
    """
    last = tokens.size - 1
    for begin in range(0, len(windows), batch_seqs):
        rows = windows[begin : begin + batch_seqs]
        padded = np.pad(rows, ((0, batch_seqs - len(rows)), (0, 0)), mode="edge")
        start, first, end = (padded[:, i : i + 1] for i in range(3))
        indices = first + np.arange(width)
        scored = indices < end
        scored[len(rows) :] = False
        yield Batch(
            ids=tokens[np.minimum(start + np.arange(seq_len), last)].astype(np.int64),
            # Columns behind a window's end read its last position and are not scored.
            positions=np.minimum(indices - start, seq_len - 1),
            targets=tokens[np.minimum(indices + 1, last)].astype(np.int64),
            indices=indices,
            scored=scored,
        )
