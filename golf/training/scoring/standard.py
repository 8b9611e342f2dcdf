"""Standard score: the validation split is cut into sequences, or documents into pieces, that do not overlap.

Every token but the first is scored once, with the tokens before it in its own sequence as context (T/2 on average). By
document the context never reaches beyond the beginning of the target's own document. The targets of a document are its
tokens after the first one and the BOS of the next document. The public scripts' flat score since record 2026-04-10
restarts at batches, too, and leaves out each rank's last batch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from golf.bits import Score
from golf.errors import GolfError
from golf.training.data.packed import document_starts, most_pieces
from golf.training.scoring.tally import Tally

TokenLosses = Callable[[Tensor, Tensor], Tensor]


@torch.no_grad()
def score_standard(token_losses: TokenLosses, tally: Tally, *, seq_len: int, batch_seqs: int) -> Score:
    """Return the score of the tokens `[k · seq_len + 1]` of `tally`, whose sequences the ranks share.

    `token_losses(inputs, targets)` gives nats `[batch_seqs, seq_len]`.
    """
    tokens = tally.tokens
    first, last = tally.ranks.share((tokens.size - 1) // seq_len)
    for begin in range(first, last, batch_seqs):
        count = min(batch_seqs, last - begin)
        span = tokens[begin * seq_len : (begin + count) * seq_len + 1].astype(np.int64)
        # The last batch is padded, so that a compiled `token_losses` sees one shape.
        padded = np.pad(span, (0, (batch_seqs - count) * seq_len))
        ids = tally.ranks.send(padded)
        losses = token_losses(ids[:-1].view(-1, seq_len), ids[1:].view(-1, seq_len))
        indices = np.arange(begin * seq_len, (begin + count) * seq_len)
        tally.add(indices, np.ones(indices.size, dtype=bool), losses[:count].flatten())
    return tally.score()


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
    return tally.score("standard by document")


def piece_rows(tokens: np.ndarray, *, seq_len: int, row_tokens: int) -> np.ndarray:
    """Return the first and the last input (exclusive) of rows of whole pieces of `tokens` `[N + 1]`, int64 `[n, 2]`.

    Raises `GolfError` if a row has no room for a piece.
    """
    if row_tokens < seq_len:
        raise GolfError(f"{row_tokens} tokens are no row for pieces of {seq_len}: raise eval.val_batch_tokens.")
    starts, most = document_starts(tokens[:-1], seq_len).astype(np.int64), most_pieces(row_tokens, seq_len)
    piece, rows = 0, []
    while piece < starts.size - 1:
        # Rows hold whole pieces, which would else lose context, and no more than flash attention is prepared for.
        end = min(int(np.searchsorted(starts, starts[piece] + row_tokens, side="right")) - 1, piece + most)
        rows.append((starts[piece], starts[end]))
        piece = end
    return np.array(rows, dtype=np.int64)
