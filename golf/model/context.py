"""What the layers of one forward pass share."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Context(NamedTuple):
    """Made once a forward pass, read by every layer."""

    ids: Tensor  # [B, T] int64
    x0: Tensor  # [B, T, d], the residual stream before the first layer
    cos: Tensor  # [1, T, 1, R/2]
    sin: Tensor
    shared: dict[str, Tensor]  # what techniques pass between layers
    active: tuple[str, ...]  # late switches that are on
