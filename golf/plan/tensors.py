"""The tensors that the artifact of a configuration stores, known from shapes alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from golf.artifact.quant.formats import FLOAT_DTYPES, QMAX
from golf.artifact.quant.policy import storage_class, storage_of, with_sensitive
from golf.settings.config import Config

ROW_SCALE_BITS, TENSOR_SCALE_BITS = 16, 32


@dataclass(frozen=True)
class StoredTensor:
    """One entry of the state dict and the format in which the artifact stores it."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    tensor_class: str  # embed | attn | mlp | other, or control: gains and scales of the residual stream
    format: str

    @property
    def role(self) -> str:
        """Return the name without the number of the layer; the tensors of a role differ in their layer only."""
        return re.sub(r"\.\d+", "", self.name)

    @property
    def numel(self) -> int:
        """Return the number of weights."""
        return torch.Size(self.shape).numel()

    @property
    def columns(self) -> int:
        """Return the number of weights that share a scale: a matrix's inputs, or all of another tensor."""
        return self.shape[-1] if len(self.shape) == 2 else self.numel

    @property
    def raw_bits(self) -> int:
        """Return the bits of codes and scales before compression."""
        if self.format in QMAX:
            # A matrix has a scale for each row, any other tensor one for all its weights.
            scales = self.shape[0] * ROW_SCALE_BITS if len(self.shape) == 2 else TENSOR_SCALE_BITS
            # The largest code of n bits with a sign is 2^(n-1) - 1.
            return self.numel * (QMAX[self.format].bit_length() + 1) + scales
        return self.numel * 8 * FLOAT_DTYPES.get(self.format, self.dtype).itemsize


def stored_tensors(cfg: Config, state_dict: dict[str, Tensor]) -> list[StoredTensor]:
    """Return every tensor of `state_dict` as `cfg.quant` stores it."""
    quant = cfg.quant if cfg.quant.sensitive.top == 0 else with_sensitive(cfg.quant, state_dict, {})
    return [
        StoredTensor(
            name,
            tuple(tensor.shape),
            tensor.dtype,
            storage_class(name, cfg.tech),
            storage_of(name, tensor, quant, cfg.tech).format,
        )
        for name, tensor in state_dict.items()
    ]


def matrix_roles(tensors: Sequence[StoredTensor]) -> dict[str, StoredTensor]:
    """Return the first tensor of every role whose matrices are stored as integers."""
    roles: dict[str, StoredTensor] = {}
    for tensor in tensors:
        if tensor.format in QMAX and len(tensor.shape) == 2 and tensor.numel:
            roles.setdefault(tensor.role, tensor)
    return roles


def weights_by_role(tensors: Sequence[StoredTensor]) -> dict[str, int]:
    """Return the number of weights by role."""
    return {role: sum(t.numel for t in tensors if t.role == role) for role in dict.fromkeys(t.role for t in tensors)}
