"""Scores by document: a target's context never reaches beyond the beginning of its own document.

The targets of a document are its tokens after the first one and the BOS of the next document, so that every token but
the split's first is scored once. The public scripts' flat score since record 2026-04-10 restarts at batches, too, and
leaves out each rank's last batch.
"""

from __future__ import annotations

import itertools

import numpy as np
import torch

from golf.bits import Score
from golf.training.data.packed import document_starts, most_pieces
from golf.training.scoring.forward import LossesAt
from golf.training.scoring.sliding import add_scores
from golf.training.scoring.standard import TokenLosses
from golf.training.scoring.tally import Tally
from golf.training.scoring.windows import list_windows

BY_DOCUMENT = "standard by document"


@torch.no_grad()
def score_by_document(token_losses: TokenLosses, tally: Tally, *, seq_len: int, row_tokens: int) -> Score:
    """Return the score with documents cut into pieces of `seq_len` tokens, each without context from before it.

    `token_losses(inputs, targets)` gives nats `[1, row_tokens]` of a row of pieces by a model that attends within
    documents. The ranks share the rows.
    """
    rows = piece_rows(tally.tokens, seq_len=seq_len, row_tokens=row_tokens)
    for begin, end in rows[slice(*tally.ranks.share(len(rows)))].tolist():
        # Padded behind its last piece, so that a compiled `token_losses` sees one shape.
        row = np.pad(tally.tokens[begin : end + 1].astype(np.int64), (0, row_tokens - (end - begin)))
        ids = tally.ranks.send(row)
        losses = token_losses(ids[None, :-1], ids[None, 1:])
        indices = np.arange(begin, end)
        tally.add(indices, np.ones(indices.size, dtype=bool), losses[0, : indices.size])
    return tally.score(BY_DOCUMENT)


def piece_rows(tokens: np.ndarray, *, seq_len: int, row_tokens: int) -> np.ndarray:
    """Return the first and the last input (exclusive) of rows of whole pieces of `tokens` `[N + 1]`, int64 `[n, 2]`."""
    starts, most, rows = document_starts(tokens[:-1], seq_len).astype(np.int64), most_pieces(row_tokens), []
    piece = 0
    while piece < starts.size - 1:
        fitting = int(np.searchsorted(starts, starts[piece] + row_tokens, side="right")) - 1
        # Rows hold whole pieces, which would else lose context, and no more than flash attention is prepared for.
        end = min(fitting, piece + most)
        rows.append((starts[piece], starts[end]))
        piece = end
    return np.array(rows, dtype=np.int64)


@torch.no_grad()
def score_sliding_by_document(
    losses_at: LossesAt, tally: Tally, *, seq_len: int, stride: int, batch_seqs: int
) -> Score:
    """Return the score with windows that are `stride` tokens apart and begin with their document at the earliest."""
    windows = document_windows(tally.tokens, seq_len, stride)
    # The first window of a document scores all that it reads, each other one `stride` targets: two shapes.
    is_first = windows[:, 0] == windows[:, 1]
    for part, width in ((windows[is_first], seq_len), (windows[~is_first], stride)):
        add_scores(tally, losses_at, part, seq_len=seq_len, width=width, batch_seqs=batch_seqs)
    return tally.score(describe_by_document(stride))


def document_windows(tokens: np.ndarray, seq_len: int, stride: int) -> np.ndarray:
    """Return the windows `[n, 3]` of (start, first scored, end) of every document of `tokens` `[N + 1]`, in order."""
    # No document is longer than the split, so none is cut into pieces.
    starts = document_starts(tokens[:-1], tokens.size).tolist()
    documents = itertools.pairwise(starts)
    return np.concatenate([begin + list_windows(end - begin, seq_len, stride) for begin, end in documents])


def describe_by_document(stride: int) -> str:
    """Return the name of this kind of score, as results and tables show it."""
    return f"sliding window by document, stride {stride}"
