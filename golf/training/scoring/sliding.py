"""The sliding-window score: every target with at least T - stride tokens before it as context (where there are any).

Source: record 2026-03-19_SlidingWindowEval; the exact tail is that of 2026-04-01_Vocab4096_MLPMult4_WD085.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from golf.bits import Score
from golf.training.data.byte_tables import ByteTables
from golf.training.ranks import Ranks
from golf.training.scoring.forward import LossesAt
from golf.training.scoring.tally import Observe, Tally
from golf.training.scoring.windows import Batch, batches, list_windows, split_first


@torch.no_grad()
def score_sliding(
    losses_at: LossesAt,
    tokens: np.ndarray,
    tables: ByteTables,
    *,
    seq_len: int,
    stride: int,
    batch_seqs: int,
    tail: str = "exact",
    ranks: Ranks | None = None,
    observe: Observe | None = None,
) -> Score:
    """Score `tokens` `[N + 1]`; the ranks share the windows, contiguously, in batches of one shape."""
    ranks = ranks or Ranks()
    tally = Tally(tokens, tables, ranks, observe)
    windows = split_first(list_windows(tokens.size - 1, seq_len, stride, tail), stride)
    own = windows[slice(*ranks.share(len(windows)))]
    add_scores(tally, losses_at, batches(tokens, own, seq_len=seq_len, width=stride, batch_seqs=batch_seqs))
    return tally.score(describe(stride, tail))


def add_scores(tally: Tally, losses_at: LossesAt, parts: Iterable[Batch]) -> None:
    """Score every batch into `tally`."""
    device = tally.ranks.device
    for batch in parts:
        ids, positions, targets = (
            torch.from_numpy(array).to(device, non_blocking=True)
            for array in (batch.ids, batch.positions, batch.targets)
        )
        tally.add(batch.indices, batch.scored, losses_at(ids, positions, targets))


def describe(stride: int, tail: str = "exact") -> str:
    """What a score of this kind is called."""
    doubled = ", upstream tail (the last tokens count more than once: to compare with public scores only)"
    return f"sliding window, stride {stride}" + (doubled if tail == "upstream" else "")
