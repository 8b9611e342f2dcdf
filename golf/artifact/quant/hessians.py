"""Hessians for GPTQ: Σ x xᵀ over the inputs of a model's matrices.

An embedding that is only looked up needs none: its Hessian is the diagonal of the token counts, under which the
nearest code is the best one. A tied embedding counts as the matrix of the head.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from golf.artifact.quant.formats import QMAX
from golf.artifact.quant.policy import storage_of
from golf.settings.config import QuantConfig


def rounded_by_gptq(weights: Mapping[str, Tensor], quant: QuantConfig) -> set[str]:
    """Return the names of the matrices that `quant` rounds by GPTQ."""
    found = set()
    for name, tensor in weights.items():
        how = storage_of(name, tensor, quant)
        if how.rounding != "nearest" and how.format in QMAX and tensor.ndim == 2:
            found.add(name)
    return found


class InputHessians:
    """A context manager that sums x xᵀ over the inputs of the linear layers of `model` whose weights are in `names`.

    A layer that runs several times a pass counts each time. Linear layers that share their input share the sum.
    """

    def __init__(self, model: nn.Module, names: Collection[str]):
        self.names, self.sums = names, dict[str, Tensor]()
        self._same_as: dict[str, str] = {}
        self._latest: tuple[Tensor, str] | None = None
        self._hooks: list[RemovableHandle] = []
        self._modules = {
            f"{name}.weight": module for name, module in model.named_modules() if isinstance(module, nn.Linear)
        }

    def __enter__(self) -> InputHessians:
        for name in self._modules.keys() & self.names:
            # The default value binds this name; the loop variable itself would be the last one in every hook.
            def observe(module: nn.Module, inputs: tuple[Tensor, ...], name: str = name) -> None:
                self.add(name, inputs[0])

            self._hooks.append(self._modules[name].register_forward_pre_hook(observe))
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        # The last input would stay in memory with the object.
        self._latest = None

    @torch.no_grad()
    def add(self, name: str, inputs: Tensor) -> None:
        """Add `inputs` `[..., c]` of the matrix `name`. Modules other than linear layers call it themselves."""
        if self._latest is not None and self._latest[0] is inputs:
            self._same_as[name] = self._latest[1]
            return
        # The tensor is kept and not its address, which another tensor could get.
        self._latest = inputs, name
        x = inputs.detach().flatten(0, -2).float()
        if name not in self.sums:
            self.sums[name] = x.new_zeros(x.size(1), x.size(1))
        self.sums[name].addmm_(x.T, x)

    def result(self) -> dict[str, Tensor]:
        """Return Σ x xᵀ `[c, c]` float32 by name, on the model's device. Matrices without any input are left out."""
        return self.sums | {name: self.sums[other] for name, other in self._same_as.items()}
