"""Hessians for GPTQ: Σ x xᵀ over the inputs of a model's matrices.

An embedding that is only looked up needs none: its Hessian is the diagonal of the token counts, under which the
nearest code is the best one. A tied embedding counts as the matrix of the head.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator

import torch
from torch import Tensor, nn

from golf.artifact.quant.formats import QMAX, Tensors
from golf.artifact.quant.policy import storage_of
from golf.settings.config import QuantConfig


def rounded_by_gptq(weights: Tensors, quant: QuantConfig) -> set[str]:
    """Return the names of the matrices that `quant` rounds by GPTQ."""
    found = set()
    for name, tensor in weights.items():
        how = storage_of(name, tensor, quant)
        if how.rounding != "nearest" and how.format in QMAX and tensor.ndim == 2:
            found.add(name)
    return found


@contextlib.contextmanager
def observed(model: nn.Module, names: Collection[str], note: Callable[[str, Tensor], None]) -> Iterator[None]:
    """Call `note` with name and input of every linear layer of `model` whose weight is in `names`, at every use."""
    hooks = []
    for module_name, module in model.named_modules():
        if isinstance(module, nn.Linear) and (name := f"{module_name}.weight") in names:
            # The default value binds this name; the loop variable itself would be the last one in every hook.
            hooks.append(module.register_forward_pre_hook(lambda _, inputs, name=name: note(name, inputs[0])))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class InputHessians:
    """Sums of x xᵀ over the inputs that `add` is given.

    A layer that runs several times a pass counts each time. Layers that share their input share the sum.
    """

    def __init__(self) -> None:
        self.sums = dict[str, Tensor]()
        self._same_as: dict[str, str] = {}
        self._latest: tuple[Tensor, str] | None = None

    @torch.no_grad()
    def add(self, name: str, inputs: Tensor) -> None:
        """Add `inputs` `[..., c]` of the matrix `name`."""
        if self._latest is not None and self._latest[0] is inputs:
            self._same_as[name] = self._latest[1]
            return
        # The tensor is kept and not its address, which another tensor could get.
        self._latest = inputs, name
        x = as_rows(inputs)
        if name not in self.sums:
            self.sums[name] = x.new_zeros(x.size(1), x.size(1))
        self.sums[name].addmm_(x.T, x)

    def stages(self) -> list[list[str]]:
        """Return the names of the matrices that share an input, in the order in which they were first used."""
        return [[name, *(n for n, other in self._same_as.items() if other == name)] for name in self.sums]

    def result(self) -> dict[str, Tensor]:
        """Return Σ x xᵀ `[c, c]` float32 by name, on the model's device. Matrices without any input are left out."""
        return self.sums | {name: self.sums[other] for name, other in self._same_as.items()}


def as_rows(inputs: Tensor) -> Tensor:
    """Return inputs `[..., c]` as float32 `[n, c]`."""
    return inputs.detach().flatten(0, -2).float()
