"""Standard score: the validation split is cut into sequences of T tokens that do not overlap.

Every token but the first is scored once, with the tokens before it in its own sequence as context (T/2 on average).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from golf.bits import Score
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
