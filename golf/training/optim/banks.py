"""Parameter banks: parameters of one shape as views of one tensor, and their gradients as views of another.

A whole bank is cast, reduced and updated by one operation each. Names and state dict of the model stay as they are:
the parameters keep their identity, only their storage moves. Source: PR #399, whose model has the banks themselves as
parameters and takes them apart for the export.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from golf.training.optim.matrices import RowCounts, row_blocks


class Bank:
    """`values` and `grads` `[N, R, c]` of N parameters, whose data and gradients become views of them."""

    def __init__(self, params: Sequence[nn.Parameter], blocks: Sequence[tuple[int, int]]):
        self.params, self.blocks = list(params), list(blocks)
        self.values = torch.stack([p.detach() for p in self.params])
        self.grads = torch.zeros_like(self.values)
        self._value_views, self._grad_views = list(self.values.unbind()), list(self.grads.unbind())
        for param, value, grad in zip(self.params, self._value_views, self._grad_views, strict=True):
            # With a gradient in place a backward pass adds into it, and so into the bank.
            param.data, param.grad = value, grad

    def segments(self) -> list[Segment]:
        """Return one segment per row block. Its matrices have one shape."""
        return [Segment(self.values[:, start:stop], self.grads[:, start:stop]) for start, stop in self.blocks]

    def zero_grad(self) -> None:
        self.grads.zero_()
        for param, grad in zip(self.params, self._grad_views, strict=True):
            # The view is put back and not set to None: autograd's next gradient would lie outside the bank.
            param.grad = grad

    def collect(self) -> None:
        """Copy in gradients that replaced the views, for instance after `param.grad = …`."""
        for param, value, grad in zip(self.params, self._value_views, self._grad_views, strict=True):
            # `model.to(device)` gives a parameter new memory, and updates of the bank would no longer reach it.
            if param.data_ptr() != value.data_ptr():
                raise RuntimeError("A parameter was moved after its optimizer was built: build the optimizer last.")
            # Without a gradient of this pass the view may still hold that of an earlier one.
            if param.grad is None:
                grad.zero_()
            elif param.grad is not grad:
                grad.copy_(param.grad)
            param.grad = grad


class Segment:
    """Matrices of one shape in a bank: views `values` and `grads` `[N, r, c]`."""

    def __init__(self, values: Tensor, grads: Tensor):
        self.values, self.grads = values, grads

    @property
    def shape(self) -> torch.Size:
        return self.values.shape[1:]


def make_banks(params: Sequence[nn.Parameter], row_counts: RowCounts | None) -> list[Bank]:
    """Move `params` into banks, one per shape and division into rows. Call it when they are on their final device."""
    groups: dict[tuple, list[nn.Parameter]] = defaultdict(list)
    for param in params:
        # The division into rows is part of the key, because `segments` cuts a whole bank at the same rows.
        groups[(param.shape, *row_blocks(param, row_counts))].append(param)
    return [Bank(group, row_blocks(group[0], row_counts)) for group in groups.values()]
