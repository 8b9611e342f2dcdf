"""The feed-forward half of a block: two bias-free matrices around a squared ReLU."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from golf.model.layers import CastedLinear


def relu_squared(x: Tensor) -> Tensor:
    """relu(x)², Primer, arXiv 2109.08668."""
    return x.relu().square()


class MLP(nn.Module):
    """W₂ · activation(W₁x). `hidden` is absolute; W₂ starts at zero."""

    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.fc = CastedLinear(dim, hidden)
        self.proj = CastedLinear(hidden, dim, zero_init=True)
        self.activation: Callable[[Tensor], Tensor] = relu_squared

    def forward(self, x: Tensor, active: tuple[str, ...] = ()) -> Tensor:
        return self.proj(self.activation(self.fc(x, active)), active)
