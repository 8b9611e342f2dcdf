"""N-gram tilt: the probability of one hinted token is raised, and all are normalised again.

p'(t) = p(t)·exp(β·[t = h]) / Z with Z = 1 + p(h)·(exp(β) - 1). This is the mixture p/Z + (1 - 1/Z)·[t = h] of
`predictor`. The hint h and its strength β at a position follow from the tokens up to that position alone. So does
p(h), which `confidence` multiplies into β.
Source: record 2026-04-09_A2_Muon097 (PR #1514), without its two experts within words, which read what they predict.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from golf.settings.scoring_config import TiltConfig
from golf.training.model.gpt import GPT
from golf.training.scoring.predictor import MixedTally, Predictions, mixed
from golf.training.scoring.windows import Batch

NO_HINT = -1
HEDGED = (0.5, 0.75, 1.0, 1.25, 1.5)  # factors on the strengths among which a document weighs
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
    leasts = settings.least_shares, settings.least_counts
    for length, least_share, least_count in zip(settings.contexts, *leasts, strict=True):
        begin = length - 1
        if targets <= begin:
            continue
        best, best_count, count = _commonest_before(context_keys(tokens[:-1], length), tokens[begin + 1 :])
        share = best_count / np.maximum(count, 1)
        taken = (count >= least_count) & (share >= least_share) & (hints[begin:] == NO_HINT)
        hints[begin:][taken] = best[taken]
        shares[begin:][taken] = share[taken]
    return Hints(hints, shares)


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
    is_best = np.r_[True, height[1:] > np.maximum.accumulate(height)[:-1]]
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


class NgramTilt:
    """Hints as a predictor: all of q lies on the hint, and λ depends on its probability by the model."""

    name = "n-gram tilt"

    def __init__(self, settings: TiltConfig):
        self.settings = settings
        self.in_text_order = settings.order == "stream"

    def follow(self, tokens: np.ndarray) -> Predictions:
        """Return hints, their strengths β, 0 where there is none, and whether they are the targets."""
        hints = find_hints(tokens, self.settings)
        factor = hints.shares if self.settings.strength == "share" else hints.tokens != NO_HINT
        shares = (hints.tokens == tokens[1:]).astype(np.float32)
        return Predictions(shares, (self.settings.beta * factor).astype(np.float32), hints.tokens)


class TiltedTally(MixedTally):
    """Sums over targets whose probabilities are tilted towards hints. Its predictor is `NgramTilt`."""

    predictor: NgramTilt

    def asked(self, batch: Batch) -> np.ndarray:
        """Return the targets of `batch` and its hints, `[2, B, S]`."""
        assert self.predictions.hints is not None
        return np.stack((batch.targets, np.maximum(self.predictions.hints[self._indices(batch)], 0)))

    def scores(self, batch: Batch, nats: Tensor) -> Tensor:
        """Return the tilted nats `[B, S]` from those of targets and hints, `[2, B, S]`."""
        settings, (shares, strengths) = self.predictor.settings, self.at(batch)
        # β·(1 - p(h))^γ knows no target (PR #2129).
        # A fused loss may round a sure hint to slightly less than no nats.
        strengths = strengths * (-torch.expm1(-nats[1])).clamp(min=0).pow(settings.confidence)
        if not settings.hedge or self.queued is None:
            return mixed(nats[0], shares, kept_beside_hint(nats[1], strengths))
        kept = torch.stack([kept_beside_hint(nats[1], factor * strengths) for factor in HEDGED])
        return self._hedged(batch, mixed(nats[0], shares, kept))

    def _hedged(self, batch: Batch, nats: Tensor) -> Tensor:
        """Return the nats `[B, S]` of the experts' mixture from theirs, `[E, B, S]`; each row is one document.

        A document weighs the experts by softmax(-η·nats), by their nats on its chunks before this one (PR #2050).
        """
        so_far, rows = self._experts_nats, np.searchsorted(self._starts, batch.indices[:, 0], side="right") - 1
        weighed = torch.log_softmax(-self.predictor.settings.hedge * so_far[:, rows], dim=0)
        so_far[:, rows] += nats.masked_fill(~self.ranks.send(batch.scored), 0.0).sum(-1, dtype=so_far.dtype)
        return -(weighed[..., None] - nats).logsumexp(0)

    @functools.cached_property
    def _starts(self) -> np.ndarray:
        assert self.queued is not None
        return np.sort(self.queued[:, 0])

    @functools.cached_property
    def _experts_nats(self) -> Tensor:
        return torch.zeros(len(HEDGED), self._starts.size, device=self.ranks.device)


def kept_beside_hint(hint_nats: Tensor, strengths: Tensor) -> Tensor:
    """Return log(1 - λ) = -log Z, with which a mixture with a hint is the model's distribution tilted towards it."""
    return -torch.log1p(torch.exp(-hint_nats) * torch.expm1(strengths))


def hinted_losses_at(model: GPT, ids: Tensor, positions: Tensor, targets: Tensor, hints: Tensor) -> Tensor:
    """Return the nats `[2, B, S]` of `targets` and `hints` `[B, S]`, at `positions` `[B, S]` of `ids` `[B, T]`."""
    x = model.hidden(ids)
    x = x.gather(1, positions[..., None].expand(-1, -1, x.size(-1)))
    return torch.stack((model.losses_of(x, targets), model.losses_of(x, hints)))
