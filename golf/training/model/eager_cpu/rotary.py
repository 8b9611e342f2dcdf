"""Rotary embedding over whole rows of heads: loops over half a head are too short for vector instructions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _Turned(torch.autograd.Function):
    """`x` `[B, T, H, D]`; `same` and `other` `[T, H·D]` weigh a channel and its partner in the other half."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, same: Tensor, other: Tensor) -> Tensor:
        ctx.save_for_backward(same, other)
        return torch.addcmul(_rows(x) * same, _rows(_swap_halves(x)), other).view(x.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        same, other = ctx.saved_tensors
        (dy,) = gradients
        # A rotation's gradient is turned back: the partner's weight has the other sign.
        back = torch.addcmul(_rows(dy) * same, _rows(_swap_halves(dy)), other, value=-1)
        return back.view(dy.shape), None, None


def _rows(x: Tensor) -> Tensor:
    return x.reshape(*x.shape[:2], -1)


def _swap_halves(x: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat((b, a), dim=-1)


def turn_whole_rows(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn all channels of every head of `x` `[B, T, H, D]`; `cos` and `sin` are `[1, T, 1, D/2]`."""
    heads = (-1, x.size(2), -1)
    same = torch.cat((cos, cos), dim=-1)[0].expand(heads).flatten(1)
    other = torch.cat((sin, -sin), dim=-1)[0].expand(heads).flatten(1)
    return _Turned.apply(x, same, other)
