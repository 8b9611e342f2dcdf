"""Sliding-window score: every target has at least T - stride tokens of context, except at the start of the text.

By document, windows begin with their document at the earliest.

Source: record 2026-03-19_SlidingWindowEval; each target counts once as in 2026-04-01_Vocab4096_MLPMult4_WD085.
"""

from __future__ import annotations

import numpy as np
import torch

from golf.bits import Score
from golf.training.scoring.document_queue import list_documents
from golf.training.scoring.forward import LossesAt
from golf.training.scoring.tally import Tally
from golf.training.scoring.windows import batches, list_windows, split_first


@torch.no_grad()
def score_sliding(losses_at: LossesAt, tally: Tally, *, seq_len: int, stride: int, batch_seqs: int) -> Score:
    """Return the score of the tokens of `tally`; the ranks share the windows, contiguously, in batches of one shape."""
    windows = split_first(list_windows(tally.tokens.size - 1, seq_len, stride), stride)
    add_scores(tally, losses_at, windows, seq_len=seq_len, width=stride, batch_seqs=batch_seqs)
    return tally.score(describe(stride))


def add_scores(
    tally: Tally, losses_at: LossesAt, windows: np.ndarray, *, seq_len: int, width: int, batch_seqs: int
) -> None:
    """Score this rank's share of `windows` `[n, 3]`, each with at most `width` targets, and add it to `tally`."""
    own = windows[slice(*tally.ranks.share(len(windows)))]
    for batch in batches(tally.tokens, own, seq_len=seq_len, width=width, batch_seqs=batch_seqs):
        tally.add(batch.indices, batch.scored, tally.batch_nats(losses_at, batch))


def describe(stride: int) -> str:
    """Return the name of this kind of score, as results and tables show it."""
    return f"sliding window, stride {stride}"


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
    return tally.score(f"sliding window by document, stride {stride}")


def document_windows(tokens: np.ndarray, seq_len: int, stride: int) -> np.ndarray:
    """Return the windows `[n, 3]` of (start, first scored, end) of every document of `tokens` `[N + 1]`, in order."""
    documents = list_documents(tokens).tolist()
    return np.concatenate([start + list_windows(targets, seq_len, stride) for start, targets in documents])
