"""Gradient clipping by global norm, after the reduction over ranks, so that every rank clips alike.

The public scripts with parameter banks clip before the reduction, each rank by the norm of its own part of the batch:
`optim.clip_before_reduction` does so, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# As in torch.nn.utils.clip_grad_norm_.
EPS = 1e-6


def squared_norm(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    """Return the sum of squares of all elements, a float64 scalar that does not depend on the grouping into tensors."""
    # Apple's GPUs have no float64.
    exact = torch.float32 if device.type == "mps" else torch.float64
    if not tensors:
        return torch.zeros((), dtype=exact, device=device)
    return torch.stack(torch._foreach_norm(list(tensors), 2.0, torch.float32)).to(exact).square().sum()


def scale_to_norm(gradients: Sequence[Tensor], squared: Tensor, max_norm: float) -> None:
    """Scale `gradients` in place by min(1, max_norm / √squared), without waiting for the device."""
    # A factor of 1 is multiplied, too: asking on the host whether to clip would wait for the device.
    torch._foreach_mul_(list(gradients), (max_norm / (squared.sqrt() + EPS)).clamp(max=1.0).float())
