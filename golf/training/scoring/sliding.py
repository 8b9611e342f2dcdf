"""Sliding-window score: every target has at least T - stride tokens of context, except at the start of the text.

Source: record 2026-03-19_SlidingWindowEval; the exact tail is that of 2026-04-01_Vocab4096_MLPMult4_WD085.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from golf.bits import Score
from golf.training.scoring.forward import LossesAt
from golf.training.scoring.tally import Tally
from golf.training.scoring.windows import Batch, batches, list_windows, split_first


@torch.no_grad()
def score_sliding(
    losses_at: LossesAt, tally: Tally, *, seq_len: int, stride: int, batch_seqs: int, tail: str = "exact"
) -> Score:
    """Return the score of the tokens of `tally`; the ranks share the windows, contiguously, in batches of one shape."""
    windows = split_first(list_windows(tally.tokens.size - 1, seq_len, stride, tail), stride)
    own = windows[slice(*tally.ranks.share(len(windows)))]
    add_scores(tally, losses_at, batches(tally.tokens, own, seq_len=seq_len, width=stride, batch_seqs=batch_seqs))
    return tally.score(describe(stride, tail))


def add_scores(tally: Tally, losses_at: LossesAt, parts: Iterable[Batch]) -> None:
    """Score every batch of `parts` and add it to `tally`."""
    for batch in parts:
        tally.add(batch.indices, batch.scored, tally.losses(losses_at, batch))


def describe(stride: int, tail: str = "exact") -> str:
    """Return the name of this kind of score, as results and tables show it."""
    doubled = ", upstream tail (the last tokens count more than once: to compare with public scores only)"
    return f"sliding window, stride {stride}" + (doubled if tail == "upstream" else "")
