"""Softcapped cross-entropy, a few rows of logits at a time: they stay in the cache through every elementwise pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK_BYTES = 2**20  # bytes of logits at a time
LARGEST_CAP = 60.0  # up to this cap a sum of exponentials over any vocabulary fits float32; at 88 it does not


class _Losses(torch.autograd.Function):
    """`x` `[N, d]`, `weight` `[V, d]`, `targets` `[N]`; keeps the gradient of the products, `[N, V]`.

    tanh(z) is 2·sigmoid(2z) - 1, which a CPU computes three times as fast, and its derivative 4·sigmoid·(1 - sigmoid).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, targets: Tensor, cap: float) -> Tensor:
        # The 2/cap of sigmoid(2·logit/cap) goes into x, which is smaller than the logits.
        scaled, losses = x * (2 / cap), x.new_empty(len(x))
        kept = x.new_empty(len(x), len(weight)) if any(ctx.needs_input_grad) else None
        rows = max(1, CHUNK_BYTES // (4 * len(weight)))
        for part in (slice(start, start + rows) for start in range(0, len(x), rows)):
            sigmoid, index = (scaled[part] @ weight.T).sigmoid_(), targets[part, None]
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
        return (kept @ weight).mul_(scale), kept.T @ (x * scale), None, None


def softcapped_losses(x: Tensor, weight: Tensor, targets: Tensor, cap: float) -> Tensor:
    """Return nats `[...]` of `targets` under logits cap·tanh(x·weightᵀ / cap): `x` is `[..., d]`, `weight` `[V, d]`."""
    return _Losses.apply(x.flatten(0, -2), weight, targets.flatten(), cap).view(targets.shape)
