"""What the artifact of a configuration will store, from shapes alone: a model without memory, techniques included."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from golf.config import Config
from golf.model.build import build_model
from golf.model.gpt import GPT
from golf.quant.formats import QMAX
from golf.quant.policy import storage_class, storage_of

FLOAT_BITS = {"fp16": 16, "bf16": 16, "fp32": 32}
ROW_SCALE_BITS, TENSOR_SCALE_BITS = 16, 32


@dataclass(frozen=True)
class StoredTensor:
    """One entry of the state dict and how the artifact will hold it."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    tensor_class: str  # embed | attn | mlp | other, or control: gains and scales of the residual stream
    format: str

    @property
    def role(self) -> str:
        """Its name without the number of the layer: what all layers have one of."""
        return re.sub(r"\.\d+", "", self.name)

    @property
    def numel(self) -> int:
        return torch.Size(self.shape).numel()

    @property
    def columns(self) -> int:
        """Inputs of a matrix: how many weights share a scale."""
        return self.shape[-1] if len(self.shape) == 2 else self.numel

    @property
    def raw_bits(self) -> int:
        """Before any compression: the format's bits a weight, and the scales."""
        if self.format in QMAX:
            scales = self.shape[0] * ROW_SCALE_BITS if len(self.shape) == 2 else TENSOR_SCALE_BITS
            return self.numel * (QMAX[self.format].bit_length() + 1) + scales
        return self.numel * FLOAT_BITS.get(self.format, 8 * self.dtype.itemsize)


class _NoNumbers(TorchFunctionMode):
    """Leaves out what imports for two seconds on the meta device and could fill nothing there anyway."""

    RANDOM = ("normal_", "uniform_", "trunc_normal_")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in self.RANDOM:
            return args[0] if args else kwargs["tensor"]
        if func is torch.stack and not kwargs:
            return torch.empty(len(args[0]), *args[0][0].shape)
        return func(*args, **(kwargs or {}))


def shapeless_model(cfg: Config) -> GPT:
    """The model of `cfg` on the meta device: names and shapes, no numbers."""
    with torch.device("meta"), _NoNumbers():
        return build_model(cfg)


def stored_tensors(cfg: Config, state_dict: dict[str, Tensor]) -> list[StoredTensor]:
    """Every tensor of `state_dict` as `cfg.quant` will store it."""
    return [
        StoredTensor(
            name,
            tuple(tensor.shape),
            tensor.dtype,
            storage_class(name),
            storage_of(name, tensor, cfg.quant).format,
        )
        for name, tensor in state_dict.items()
    ]


def matrix_roles(tensors: Sequence[StoredTensor]) -> dict[str, StoredTensor]:
    """Roles whose matrices are stored as integers, each with its first tensor."""
    roles: dict[str, StoredTensor] = {}
    for tensor in tensors:
        if tensor.format in QMAX and len(tensor.shape) == 2 and tensor.numel:
            roles.setdefault(tensor.role, tensor)
    return roles


def weights_by_role(tensors: Sequence[StoredTensor]) -> dict[str, int]:
    """How many weights the tensors of each role hold."""
    return {role: sum(t.numel for t in tensors if t.role == role) for role in dict.fromkeys(t.role for t in tensors)}
