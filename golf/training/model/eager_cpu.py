"""Faster kernels for eager runs on a CPU. Other runs use no more of this file than attention in float32.

torch's separate elementwise kernels and small attention tiles leave a CPU waiting for memory. The functions here do the
same arithmetic in fewer passes, with backward passes of their own. docs/benchmarks.md has the gain of each. In bf16
norms, turned heads and the losses behind their matrix product compute in float32, because a CPU has fast arithmetic in
bf16 for matrix products alone, and torch's separate operations round more often.

A submitted script does without them: it is made for GPUs, and its bytes count. So does GOLF_EAGER_CPU=off.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor

OFF = os.environ.get("GOLF_EAGER_CPU") == "off"
BLOCK = 64  # queries; on average half a block of masked scores is computed in vain
LONGEST_IN_FLOAT32 = 512  # tokens; the backward pass of torch's bf16 kernel is slow, and most of all for short rows
LONGEST = 1024  # tokens; memory of the attention weights grows with their square
CHUNK_BYTES = 2**20  # bytes of logits at a time
EPS = torch.finfo(torch.float32).eps  # torch's default in a norm, for bf16, too
LARGEST_CAP = 60.0  # up to this cap a sum of exponentials over any vocabulary fits float32; at 88 it does not


def suits_eager_cpu(x: Tensor) -> bool:
    """Tell whether these kernels compute activations like `x`. A compiler fuses torch's own operations better."""
    on_cpu = x.device.type == "cpu" and x.dtype in (torch.float32, torch.bfloat16)
    return not OFF and on_cpu and not torch.compiler.is_compiling()


def attends_in_float32(q: Tensor) -> bool:
    """Tell whether attention to `q` `[B, T, H, D]` trains faster in float32 than in bf16, compiled or not."""
    in_bf16 = not OFF and q.device.type == "cpu" and q.dtype == torch.bfloat16
    return in_bf16 and q.requires_grad and q.size(1) <= LONGEST_IN_FLOAT32


class _RMSNorm(torch.autograd.Function):
    """RMS norm in half the passes over memory that autograd needs for torch's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        factor = _unit_factor(x, eps)
        ctx.save_for_backward(x, factor)
        return x * factor

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        x, factor = ctx.saved_tensors
        (dy,) = gradients
        product = dy * x
        # dx = f·(dy - x·f²·mean(dy·x)), with f the factor of the forward pass.
        along = product.sum(-1, keepdim=True).mul_(factor.square()).div_(-x.size(-1))
        return torch.addcmul(dy, x, along, out=product).mul_(factor), None


def eager_rms_norm(x: Tensor, eps: float | None) -> Tensor:
    """Scale the last dimension of `x` to unit RMS."""
    return _RMSNorm.apply(x.float(), EPS if eps is None else eps).to(x.dtype)


def _unit_factor(x: Tensor, eps: float) -> Tensor:
    """Return the factors `[..., 1]` that give the last dimension of `x` unit RMS."""
    # It reads `x` once. A square and its mean would write and read a tensor as large as `x`.
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return norm.square_().div_(x.size(-1)).add_(eps).rsqrt_()


class _ReluSquared(torch.autograd.Function):
    """relu(x)² that keeps one tensor for its backward pass, where autograd keeps two and masks the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        positive = x.relu()
        if not ctx.needs_input_grad[0]:
            return positive.square_()
        ctx.save_for_backward(positive)
        return positive.square()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return (gradients[0] * ctx.saved_tensors[0]).mul_(2)


def eager_relu_squared(x: Tensor) -> Tensor:
    """Return relu(x)² of float32 `x`."""
    return _ReluSquared.apply(x)


class _TurnedUnitHeads(torch.autograd.Function):
    """Heads of `x` `[B, T, H, D]` at unit RMS times a gain `[H]`, turned.

    `same` and `other` `[T, H·D]` weigh a channel and its partner in the other half. A turn and a factor on a head
    commute, so norm and gain are one factor, and the backward pass finds the gain's gradient in the norm's.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, same: Tensor, other: Tensor, eps: float) -> Tensor:
        factor = _unit_factor(x, eps)
        ctx.save_for_backward(x, factor, gain, same, other)
        unit = x * (factor * gain[:, None])
        swapped = _rows(_swap_halves(unit))
        return _rows(unit).mul_(same).addcmul_(swapped, other).view(x.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        x, factor, gain, same, other = ctx.saved_tensors
        (dy,) = gradients
        # A rotation's gradient is turned back: the partner's weight has the other sign.
        back = torch.addcmul(_rows(dy) * same, _rows(_swap_halves(dy)), other, value=-1).view(x.shape)
        along = (back * x).sum(-1, keepdim=True)
        dgain = (along * factor).sum((0, 1, 3)) if ctx.needs_input_grad[1] else None
        # dx = f·g·(back - x·f²·mean(back·x)), with f the factor of the norm and g the gain.
        back.addcmul_(x, along.mul_(factor.square()).div_(-x.size(-1)))
        return back.mul_(factor * gain[:, None]), dgain, None, None, None


def _rows(x: Tensor) -> Tensor:
    return x.reshape(*x.shape[:2], -1)


def _swap_halves(x: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat((b, a), dim=-1)


def turn_unit_heads(x: Tensor, gain: Tensor, cos: Tensor, sin: Tensor, eps: float | None = None) -> Tensor:
    """Scale heads of `x` `[B, T, H, D]` to unit RMS times `gain` `[H]` and turn all their channels.

    `cos` and `sin` are `[1, T, 1, D/2]`; `eps` is that of `F.rms_norm`.
    """
    # Whole rows of heads, because loops over half a head are too short for vector instructions.
    heads = (-1, x.size(2), -1)
    same = torch.cat((cos, cos), dim=-1)[0].expand(heads).flatten(1).float()
    other = torch.cat((sin, -sin), dim=-1)[0].expand(heads).flatten(1).float()
    return _TurnedUnitHeads.apply(x.float(), gain, same, other, EPS if eps is None else eps).to(x.dtype)


class _Blockwise(torch.autograd.Function):
    """Attention out of a few large matrix products, where torch's own kernel multiplies many small tiles.

    A block of queries meets all keys up to its end at once, and the query heads that share a key head are rows of one
    product: `q` `[B·K, T·r, D]`, rows by token, then by the r query heads of a key head; `k`, `v` `[B·K, T, D]`.
    """

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
    grouped = q.view(batch, tokens, -1, shared, dim).transpose(1, 2)
    # The scale goes into the keys, which are fewer numbers than the queries and the scores.
    keys, values = (t.transpose(1, 2).reshape(-1, tokens, dim) for t in (k * dim**-0.5, v))
    y = _Blockwise.apply(grouped.reshape(-1, tokens * shared, dim), keys, values, shared)
    return y.view(batch, -1, tokens, shared, dim).transpose(1, 2).reshape(q.shape)


class _Losses(torch.autograd.Function):
    """A few rows of logits at a time, so that they stay in the cache through every elementwise pass.

    `x` `[N, d]`, `weight` `[V, d]`, `targets` `[N]`; keeps the gradient of the products, `[N, V]`.
    tanh(z) is 2·sigmoid(2z) - 1, which a CPU computes three times as fast, and its derivative 4·sigmoid·(1 - sigmoid).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, targets: Tensor, cap: float) -> Tensor:
        # The 2/cap of sigmoid(2·logit/cap) goes into x, which is smaller than the logits. In bf16 this rounds x again.
        scaled, losses = x * (2 / cap), x.new_empty(len(x), dtype=torch.float32)
        kept = x.new_empty(len(x), len(weight)) if any(ctx.needs_input_grad) else None
        rows = max(1, CHUNK_BYTES // (4 * len(weight)))
        for part in (slice(start, start + rows) for start in range(0, len(x), rows)):
            sigmoid, index = (scaled[part] @ weight.T).float().sigmoid_(), targets[part, None]
            logits = (sigmoid * (2 * cap)).sub_(cap)
            # It is read here, before the exponential overwrites the logits.
            at_target = logits.gather(1, index)[:, 0]
            # No maximum is subtracted first: logits are within ±cap, where `LARGEST_CAP` keeps the sum finite.
            odds = logits.exp_()
            total = odds.sum(1)
            losses[part] = total.log() - at_target
            if kept is not None:
                # Softmax less 1 at the target, times the sigmoid's derivative: the gradient of the products but for
                # `scale`.
                wrong = odds.div_(total[:, None]).scatter_add_(1, index, odds.new_full(index.shape, -1.0))
                torch.mul(wrong, sigmoid.addcmul_(sigmoid, sigmoid, value=-1), out=kept[part])
        if kept is not None:
            ctx.save_for_backward(x, weight, kept)
        return losses

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x, weight, kept = ctx.saved_tensors
        scale = 4 * gradients[0][:, None]
        return (kept @ weight).mul_(scale), kept.T @ (x * scale).to(x.dtype), None, None


def softcapped_losses(x: Tensor, weight: Tensor, targets: Tensor, cap: float) -> Tensor:
    """Return nats `[...]` of `targets` under logits cap·tanh(x·weightᵀ / cap): `x` is `[..., d]`, `weight` `[V, d]`."""
    return _Losses.apply(x.flatten(0, -2), weight, targets.flatten(), cap).view(targets.shape)
