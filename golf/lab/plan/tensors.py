"""The tensors that the artifact of a configuration stores, known from shapes alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from golf.artifact.quant.formats import FLOAT_DTYPES, Format, OwnFormat, formats_of
from golf.artifact.quant.policy import storage_class, storage_of, with_sensitive
from golf.settings.config import Config


@dataclass(frozen=True)
class StoredTensor:
    """One entry of the state dict and the format in which the artifact stores it."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    tensor_class: str  # embed | attn | mlp | other, or control: gains and scales of the residual stream
    format: str
    form: Format | OwnFormat | None  # None for integers and booleans, which are stored as they are

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
        if self.form is None:
            return self.numel * 8 * self.dtype.itemsize
        return self.numel * self.form.bits + self.form.scale_bits(self.shape)

    @property
    def has_codes(self) -> bool:
        """Tell whether it is stored as codes with scales."""
        return self.form is not None and self.format not in FLOAT_DTYPES


StoredTensors = Sequence[StoredTensor]  # those of one model


def stored_tensors(cfg: Config, state_dict: dict[str, Tensor]) -> list[StoredTensor]:
    """Return every tensor of `state_dict` as `cfg.quant` stores it."""
    quant = cfg.quant if cfg.quant.sensitive.top == 0 else with_sensitive(cfg.quant, state_dict, {})
    formats, stored = formats_of(cfg.tech), []
    for name, tensor in state_dict.items():
        named, kind = storage_of(name, tensor, quant, cfg.tech).format, storage_class(name, cfg.tech)
        stored.append(StoredTensor(name, tuple(tensor.shape), tensor.dtype, kind, named, formats.get(named)))
    return stored


def matrix_roles(tensors: StoredTensors) -> dict[str, StoredTensor]:
    """Return the first tensor of every role whose matrices are stored as codes."""
    roles: dict[str, StoredTensor] = {}
    for tensor in tensors:
        if tensor.has_codes and len(tensor.shape) == 2 and tensor.numel:
            roles.setdefault(tensor.role, tensor)
    return roles


def weights_by_role(tensors: StoredTensors) -> dict[str, int]:
    """Return the number of weights by role."""
    return {role: sum(t.numel for t in tensors if t.role == role) for role in dict.fromkeys(t.role for t in tensors)}
