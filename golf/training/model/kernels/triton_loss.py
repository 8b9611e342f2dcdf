"""Softcapped cross-entropy in Triton: one pass over the logits forward, one backward, and no other tensor `[N, V]`.

The April records have it as `FUSED_CE_ENABLED` (record 2026-04-22). Arithmetic is in float32 whatever the logits are.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

COLUMNS = 1024  # logits that a program reads at a time; it has a row


@triton.jit
def losses_kernel(logits, targets, losses, totals, vocabulary, cap, block: tl.constexpr):
    """Write the loss of a row and the logarithm of its sum of exponentials.

    cap·tanh(x / cap) is 2·cap·sigmoid(2x / cap) - cap. No maximum is subtracted: a cap of 60 keeps sums in float32.
    """
    # 64 bits, because rows times vocabulary can exceed 2³¹.
    row = tl.program_id(0).to(tl.int64)
    start = logits + row * vocabulary
    total = tl.zeros([block], tl.float32)
    for first in range(0, vocabulary, block):
        column = first + tl.arange(0, block)
        inside = column < vocabulary
        x = tl.load(start + column, mask=inside, other=0.0).to(tl.float32)
        total += tl.where(inside, tl.exp(2 * cap * tl.sigmoid(x * (2 / cap)) - cap), 0.0)
    # The target's logit is read again, which costs less than finding it in the loop.
    x = tl.load(start + tl.load(targets + row)).to(tl.float32)
    log_total = tl.log(tl.sum(total, 0))
    tl.store(totals + row, log_total)
    tl.store(losses + row, log_total - (2 * cap * tl.sigmoid(x * (2 / cap)) - cap))


@triton.jit
def gradient_kernel(logits, targets, totals, grad, out, vocabulary, cap, block: tl.constexpr):
    """Write a row of the gradient of the logits: (softmax less 1 at the target) times the derivative of the cap."""
    row = tl.program_id(0).to(tl.int64)
    start, target = row * vocabulary, tl.load(targets + row)
    log_total, scale = tl.load(totals + row), 4 * tl.load(grad + row)
    for first in range(0, vocabulary, block):
        column = first + tl.arange(0, block)
        inside = column < vocabulary
        s = tl.sigmoid(tl.load(logits + start + column, mask=inside, other=0.0).to(tl.float32) * (2 / cap))
        wrong = tl.exp(2 * cap * s - cap - log_total) - tl.where(column == target, 1.0, 0.0)
        tl.store(out + start + column, (scale * wrong * s * (1 - s)).to(out.dtype.element_ty), mask=inside)


@torch.library.custom_op("golf::softcapped_losses", mutates_args=())
def softcapped_losses(logits: Tensor, targets: Tensor, cap: float) -> tuple[Tensor, Tensor]:
    """Return nats `[N]` of `targets` `[N]` under logits `[N, V]` before the cap, and log-sums `[N]`, in float32."""
    logits, targets = logits.contiguous(), targets.contiguous()
    losses, totals = (torch.empty(len(logits), device=logits.device) for _ in range(2))
    losses_kernel[(len(logits),)](logits, targets, losses, totals, logits.size(1), cap, COLUMNS)
    return losses, totals


@torch.library.custom_op("golf::softcapped_gradient", mutates_args=())
def softcapped_gradient(logits: Tensor, targets: Tensor, totals: Tensor, grad: Tensor, cap: float) -> Tensor:
    """Return the gradient `[N, V]` of `logits`, given `grad` `[N]` of the losses and the log-sums `totals` `[N]`."""
    logits, targets, grad = logits.contiguous(), targets.contiguous(), grad.contiguous()
    out = torch.empty_like(logits)
    gradient_kernel[(len(logits),)](logits, targets, totals, grad, out, logits.size(1), cap, COLUMNS)
    return out


@softcapped_losses.register_fake
def _(logits: Tensor, targets: Tensor, cap: float) -> tuple[Tensor, Tensor]:
    return logits.new_empty(len(logits), dtype=torch.float32), logits.new_empty(len(logits), dtype=torch.float32)


@softcapped_gradient.register_fake
def _(logits: Tensor, targets: Tensor, totals: Tensor, grad: Tensor, cap: float) -> Tensor:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    logits, targets, ctx.cap = inputs
    ctx.save_for_backward(logits, targets, output[1])
    # The log-sums are kept for the backward pass only; nothing may ask for their gradient.
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
    return softcapped_gradient(*ctx.saved_tensors, grad, ctx.cap), None, None


softcapped_losses.register_autograd(_backward, setup_context=_keep)


def fused_losses(logits: Tensor, targets: Tensor, cap: float) -> Tensor:
    """Return nats `[...]` float32 of `targets` `[...]` under raw logits `[..., V]` capped to ±`cap` of at most 60."""
    losses, _ = softcapped_losses(logits.flatten(0, -2), targets.flatten(), cap)
    return losses.view(targets.shape)
