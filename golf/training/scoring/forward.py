"""Losses of a model at some positions only, so that the head is not computed for the others."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from golf.training.model.gpt import GPT

Head = Callable[[Tensor], Tensor]  # [..., d] → [..., V], before the soft cap
LossesAt = Callable[..., Tensor]  # function of ids, positions and targets, like `losses_at`


def losses_at(model: GPT, ids: Tensor, positions: Tensor, targets: Tensor, head: Head | None = None) -> Tensor:
    """Return the nats `[B, S]` float32 of `targets` `[B, S]`, predicted at `positions` `[B, S]` of `ids` `[B, T]`.

    `head` replaces the model's own map from the stream to the logits before the soft cap. With it `targets` may be
    several for each position, `[K, B, S]`, and so are the nats. Those of the first alone have gradients.
    """
    x = model.hidden(ids)  # [B, T, d]
    x = x.gather(1, positions[..., None].expand(-1, -1, x.size(-1)))
    if head is None:
        return model.losses_of(x, targets)
    logits = model.softcap(head(x)).float().flatten(0, 1)
    first, *others = targets.reshape(-1, positions.numel())
    nats = [F.cross_entropy(logits, first, reduction="none")]
    nats += [F.cross_entropy(logits.detach(), other, reduction="none") for other in others]
    return torch.stack(nats).view(targets.shape)


def compiled_losses(model: GPT, mode: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the function of `ids` and targets `[B, T]` that gives the nats of every target, for training on them."""

    def losses(ids: Tensor, targets: Tensor) -> Tensor:
        return model.token_losses(ids, targets)

    # Not for every number of sequences: the last update of a chunk has fewer.
    return torch.compile(losses, dynamic=False, fullgraph=True) if mode == "full" else losses


def compiled_losses_at(model: GPT, mode: str) -> LossesAt:
    """Return `losses_at` for `model`, compiled if `mode` is `full`; under `blocks` the model's blocks are compiled."""

    def losses(ids: Tensor, positions: Tensor, targets: Tensor) -> Tensor:
        return losses_at(model, ids, positions, targets)

    return torch.compile(losses, dynamic=False, fullgraph=True) if mode == "full" else losses
