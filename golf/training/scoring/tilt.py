"""N-gram tilt: the probability of one hinted token is raised, and all are normalised again.

p'(t) = p(t)·exp(β·[t = h]) / Z with Z = 1 + p(h)·(exp(β) - 1), so that the nats of target t are
nll + log Z - β·[t = h]. The hint h and its strength β at a position follow from the tokens up to that position alone.
Source: record 2026-04-09_A2_Muon097 (PR #1514), without its two experts within words, which read what they predict.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from golf.bits import STANDARD, Score
from golf.settings.scoring_config import TiltConfig
from golf.training.model.gpt import GPT
from golf.training.scoring.forward import LossesAt
from golf.training.scoring.tally import Tally
from golf.training.scoring.windows import Batch

NO_HINT = -1
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, with its bits well mixed


class Hints(NamedTuple):
    """A hint for every target."""

    tokens: np.ndarray  # int64 [N], `NO_HINT` where there is none
    shares: np.ndarray  # float32 [N], share of the hint among the continuations of its context; 0 where there is none


def find_hints(tokens: np.ndarray, settings: TiltConfig) -> Hints:
    """Return the hints for the targets of `tokens` `[N + 1]`: the commonest continuation so far of the longest context.

    The hint for target i, which is token i + 1, is found in tokens 0 … i. Among equally common continuations, the one
    that reached its count first is taken.
    """
    targets = tokens.size - 1
    hints, shares = np.full(targets, NO_HINT, dtype=np.int64), np.zeros(targets, dtype=np.float32)
    for length, least_share, least_count in zip(
        settings.contexts, settings.least_shares, settings.least_counts, strict=True
    ):
        begin = length - 1
        if targets <= begin:
            continue
        best, best_count, count = _commonest_before(context_keys(tokens[:-1], length), tokens[begin + 1 :])
        share = best_count / np.maximum(count, 1)
        taken = (count >= least_count) & (share >= least_share) & (hints[begin:] == NO_HINT)
        hints[begin:][taken] = best[taken]
        shares[begin:][taken] = share[taken]
    return Hints(hints, shares)


def find_hints_in_order(tokens: np.ndarray, settings: TiltConfig, documents: np.ndarray) -> Hints:
    """Return the hints for the targets of `tokens` `[N + 1]` as if `documents` `[n, 2]` were a text in their order."""
    places = np.concatenate([np.arange(start, start + targets) for start, targets in documents.tolist()])
    found = find_hints(np.append(tokens[places], tokens[-1]), settings)
    back = places.argsort()
    return Hints(found.tokens[back], found.shares[back])


def context_keys(tokens: np.ndarray, length: int) -> np.ndarray:
    """Return a hash of every stretch of `length` of `tokens` `[n]`, uint64 `[n - length + 1]`."""
    keys = np.zeros(tokens.size - length + 1, dtype=np.uint64)
    for offset in range(length):
        keys = (keys + tokens[offset : offset + keys.size].astype(np.uint64) + np.uint64(1)) * MULTIPLIER
        # Products carry upwards only. Without this, the low bits would know the tokens' low bits alone.
        keys ^= keys >> np.uint64(29)
    return keys


def _commonest_before(keys: np.ndarray, followers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for every place the commonest follower of its key at earlier places, its count, and the key's count."""
    n = keys.size
    by_key = np.argsort(keys, kind="stable")
    is_new = np.r_[True, keys[by_key][1:] != keys[by_key][:-1]]
    group, place = np.cumsum(is_new) - 1, np.arange(n)
    first = np.maximum.accumulate(np.where(is_new, place, 0))
    follower = followers[by_key].astype(np.int64)
    repeats = _repeats(group, follower)
    # Within a group the highest count so far; groups ascend, so that one running maximum serves all.
    height = group * np.int64(n + 1) + repeats
    running = np.maximum.accumulate(height)
    is_best = np.r_[True, height[1:] > running[:-1]]
    best_place = np.maximum.accumulate(np.where(is_best, place, 0))
    # The state after the place before, which is in the same group unless the place is its group's first.
    before, seen = np.maximum(place - 1, 0), place - first
    result = [np.empty(n, dtype=np.int64) for _ in range(3)]
    for array, values in zip(
        result, (follower[best_place[before]], np.where(seen > 0, repeats[best_place[before]], 0), seen), strict=True
    ):
        array[by_key] = values
    return result[0], result[1], result[2]


def _repeats(group: np.ndarray, follower: np.ndarray) -> np.ndarray:
    """Return for every place how often its pair has occurred up to it, counted from 1."""
    order = np.lexsort((follower, group))
    pairs = np.stack((group[order], follower[order]))
    place = np.arange(group.size)
    is_new = np.r_[True, (pairs[:, 1:] != pairs[:, :-1]).any(0)]
    repeats = np.empty(group.size, dtype=np.int64)
    repeats[order] = place - np.maximum.accumulate(np.where(is_new, place, 0)) + 1
    return repeats


class TiltedTally(Tally):
    """Sums over targets, of which those that `losses` is asked for are tilted towards their hints."""

    def __init__(self, settings: TiltConfig, tokens: np.ndarray, *others: Any):
        super().__init__(tokens, *others)
        self.settings = settings

    @functools.cached_property
    def hints(self) -> Hints:
        """Hints for all targets. They are found when the first window asks, so that their seconds count."""
        if self.settings.order == "stream" or self.documents is None:
            return find_hints(self.tokens, self.settings)
        return find_hints_in_order(self.tokens, self.settings, self.documents)

    def losses(self, losses_at: LossesAt, batch: Batch) -> Tensor:
        """Return the tilted nats `[B, S]` of the targets of `batch`; `losses_at` is that of `tilted_losses_at`."""
        hints, strengths = self._of(batch)
        return losses_at(*map(self.ranks.send, (batch.ids, batch.positions, batch.targets, hints, strengths)))

    def asked(self, batch: Batch) -> np.ndarray:
        """Return the targets and the hints of `batch`, `[2, B, S]`."""
        return np.stack((batch.targets, self._of(batch)[0]))

    def scores(self, batch: Batch, nats: Tensor) -> Tensor:
        """Return the tilted nats `[B, S]` from those of targets and hints, `[2, B, S]`."""
        hints, strengths = self._of(batch)
        return tilt(nats[0], nats[1], self.ranks.send(batch.targets == hints), self.ranks.send(strengths))

    def _of(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """Return hints, 0 where there is none, and their strengths, 0 there as well, for the targets of `batch`."""
        # Columns behind the split's end are not scored, and have no hint.
        indices = np.minimum(batch.indices, self.hints.tokens.size - 1)
        shares, hints = self.hints.shares[indices], self.hints.tokens[indices]
        factor = shares if self.settings.strength == "share" else hints != NO_HINT
        return np.maximum(hints, 0), (self.settings.beta * factor).astype(np.float32)

    def score(self, how: str = STANDARD) -> Score:
        """Return the score over all ranks, whose name says whether it is tilted."""
        return super().score(f"{how}, n-gram tilt" if "hints" in self.__dict__ else how)


def tilted_losses_at(
    model: GPT, ids: Tensor, positions: Tensor, targets: Tensor, hints: Tensor, strengths: Tensor
) -> Tensor:
    """Return the nats `[B, S]` of `targets` under distributions tilted towards `hints` by `strengths` `[B, S]`."""
    x = model.hidden(ids)
    x = x.gather(1, positions[..., None].expand(-1, -1, x.size(-1)))
    return tilt(model.losses_of(x, targets), model.losses_of(x, hints), targets == hints, strengths)


def tilt(nats: Tensor, hint_nats: Tensor, is_hint: Tensor, strengths: Tensor) -> Tensor:
    """Return `nats` of targets after the tilt; `hint_nats` are those of the hints before it."""
    normalizer = torch.log1p(torch.exp(-hint_nats) * torch.expm1(strengths))
    return nats + normalizer - strengths * is_hint
