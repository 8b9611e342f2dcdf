"""The matrices that Muon orthogonalises: whole parameters, or the row blocks of one that stores several.

A module whose parameter is several matrices on top of each other (query, key and value in one, say) declares it as
`separate_rows = {"weight": [512, 256, 256]}`, row counts by local parameter name: orthogonalising the stack as one
matrix would be another optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from golf.errors import GolfError

RowCounts = Mapping[nn.Parameter, Sequence[int]]


@dataclass(frozen=True, eq=False)
class Matrix:
    """Rows `start` to `stop` of a 2-D parameter."""

    param: nn.Parameter
    start: int
    stop: int

    @property
    def shape(self) -> torch.Size:
        return torch.Size((self.stop - self.start, self.param.shape[1]))

    @property
    def value(self) -> Tensor:
        """Return a view `[r, c]` of the parameter, for in-place updates."""
        return self.param.detach()[self.start : self.stop]

    @property
    def grad(self) -> Tensor:
        """Return a view `[r, c]` of the gradient, or zeros if there is none."""
        if self.param.grad is None:
            # A matrix without a gradient keeps its place in the batch of its shape, and its momentum fades.
            return torch.zeros_like(self.value)
        return self.param.grad[self.start : self.stop]


def row_blocks(param: nn.Parameter, row_counts: RowCounts | None) -> list[tuple[int, int]]:
    """Return the first and last row (exclusive) of every matrix in `param`: one block if `row_counts` lacks it."""
    blocks, start = [], 0
    for rows in row_counts.get(param, (param.shape[0],)) if row_counts else (param.shape[0],):
        blocks.append((start, start + rows))
        start += rows
    return blocks


def matrices_of(params: Sequence[nn.Parameter], row_counts: RowCounts | None) -> list[Matrix]:
    """Return all matrices of `params`, in their order and from top to bottom."""
    return [Matrix(p, start, stop) for p in params for start, stop in row_blocks(p, row_counts)]


def declared_row_counts(model: nn.Module) -> dict[nn.Parameter, list[int]]:
    """Collect `separate_rows` of the modules of `model`. Raises `GolfError` if counts do not add up."""
    found: dict[nn.Parameter, list[int]] = {}
    for path, module in model.named_modules():
        declared: dict[str, list[int]] = getattr(module, "separate_rows", {})
        for name, rows in declared.items():
            # A copy that is not trained holds buffers.
            if name in module._buffers:
                continue
            param = module.get_parameter(name)
            if sum(rows) != param.shape[0] or min(rows) < 1:
                raise GolfError(
                    f"separate_rows of {path} cuts {name} {tuple(param.shape)} into {list(rows)} rows: "
                    f"they have to add up to {param.shape[0]}."
                )
            found[param] = list(rows)
    return found
