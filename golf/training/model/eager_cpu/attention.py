"""Causal attention out of a few large matrix products, for training in float32 on a CPU.

torch's own CPU kernel multiplies many small tiles, which in the backward pass of short sequences costs more than
keeping the attention weights. Here a block of queries meets all keys up to its end at once, and the query heads that
share a key head are rows of one product. docs/benchmarks.md has the gain.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

BLOCK = 64  # queries; on average half a block of masked scores is computed in vain
LONGEST = 1024  # tokens; memory of the attention weights grows with their square


class _Blockwise(torch.autograd.Function):
    """`q` `[B·K, T·r, D]`, rows by token, then by the r query heads of a key head; `k`, `v` `[B·K, T, D]`."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, shared: int) -> Tensor:
        y, kept = torch.empty_like(q), []
        for start, stop in blocks(k.size(1)):
            rows = slice(start * shared, stop * shared)
            scores = torch.bmm(q[:, rows], k[:, :stop].mT)
            _hide_the_future(scores, start, stop, shared)
            weights = torch.softmax(scores, dim=-1)
            y[:, rows] = torch.bmm(weights, v[:, :stop])
            kept.append(weights)
        ctx.save_for_backward(q, k, v, y, *kept)
        ctx.shared = shared
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, y, *kept = ctx.saved_tensors
        (dy,) = gradients
        # A query belongs to one block, which writes its row whole. Keys and values collect from every later block.
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        # The softmax's backward pass needs Σ weight·dweight of each row, which equals dy·y and needs no product.
        inner = (dy * y).sum(-1, keepdim=True)
        for (start, stop), weights in zip(blocks(k.size(1)), kept, strict=True):
            rows = slice(start * ctx.shared, stop * ctx.shared)
            dv[:, :stop] += torch.bmm(weights.mT, dy[:, rows])
            dscores = torch.bmm(dy[:, rows], v[:, :stop].mT).sub_(inner[:, rows]).mul_(weights)
            dq[:, rows] = torch.bmm(dscores, k[:, :stop])
            dk[:, :stop] += torch.bmm(dscores.mT, q[:, rows])
        return dq, dk, dv, None


def blocks(tokens: int) -> list[tuple[int, int]]:
    """Return the first and last position (exclusive) of every block of queries."""
    return [(start, min(start + BLOCK, tokens)) for start in range(0, tokens, BLOCK)]


def _hide_the_future(scores: Tensor, start: int, stop: int, shared: int) -> None:
    """Set `[…, (stop - start)·shared, stop]` scores of later keys to -inf, in place."""
    size = stop - start
    # Only keys of the block itself can be in the future, so the mask is one small triangle.
    future = torch.full((size, size), float("-inf"), dtype=scores.dtype, device=scores.device).triu(1)
    scores.view(-1, size, shared, stop)[..., start:] += future[:, None]


def attend_in_blocks(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Compute causal softmax attention at scale 1/√D: `q` `[B, T, H, D]`, `k` and `v` `[B, T, K, D]`, H % K = 0."""
    batch, tokens, heads, dim = q.shape
    shared = heads // k.size(2)
    # The scale goes into the queries, which are fewer numbers than the scores.
    grouped = (q * dim**-0.5).view(batch, tokens, -1, shared, dim).transpose(1, 2)
    keys, values = (t.transpose(1, 2).reshape(-1, tokens, dim) for t in (k, v))
    y = _Blockwise.apply(grouped.reshape(-1, tokens * shared, dim), keys, values, shared)
    return y.view(batch, -1, tokens, shared, dim).transpose(1, 2).reshape(q.shape)
