"""The feed-forward half of a block: two bias-free matrices around a squared ReLU."""

from __future__ import annotations

from torch import Tensor, nn

from golf.model.layers import CastedLinear


class MLP(nn.Module):
    """relu(W₁x)² then W₂ (Primer, arXiv 2109.08668). `hidden` is absolute; W₂ starts at zero."""

    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.fc = CastedLinear(dim, hidden)
        self.proj = CastedLinear(hidden, dim, zero_init=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(self.fc(x).relu().square())
