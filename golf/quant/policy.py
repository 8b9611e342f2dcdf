"""Which tensor of a state dict is stored in which format, by class of name and by size."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from fnmatch import fnmatch

from torch import Tensor

from golf.config import QuantConfig, TensorQuant, tensor_classes
from golf.model.names import is_control
from golf.quant.formats import QMAX, CodedTensor, decode, encode_float, encode_integer
from golf.quant.pruning import prune_ones

FLOAT_FORMATS = ("fp16", "fp32")


def tensor_class(name: str) -> str:
    """`embed`, `mlp`, `attn` or `other`, the keys of `QuantConfig` that say how they are stored."""
    if "tok_emb" in name or "lm_head" in name:
        return "embed"
    if ".mlp." in name:
        return "mlp"
    return "attn" if ".attn." in name else "other"


def storage_class(name: str) -> str:
    """`tensor_class`, but `control` for the gains and scales of the residual stream: what tables of bytes go by."""
    return "control" if is_control(name) else tensor_class(name)


def storage_of(name: str, tensor: Tensor, quant: QuantConfig) -> TensorQuant:
    """The settings of a tensor's class with the format that this tensor gets, which may also be `raw`.

    Integers and booleans stay as they are. A format by name goes before all other rules, then come small tensors.
    """
    settings = tensor_classes(quant)[tensor_class(name)]
    named = next((fmt for pattern, fmt in quant.by_name.items() if fnmatch(name, pattern)), None)
    if not tensor.is_floating_point():
        fmt = "raw"
    elif named is None and tensor.numel() <= quant.small_numel:
        fmt = "fp32" if is_control(name) else "fp16"
    else:
        fmt = named or settings.format
    return dataclasses.replace(settings, format=fmt)


def quantize(state_dict: Mapping[str, Tensor], quant: QuantConfig) -> dict[str, CodedTensor]:
    """Every tensor of a state dict in its stored form, on the CPU. `dequantize` is the way back."""
    coded = {name: _encode(name, tensor.detach().cpu(), quant) for name, tensor in state_dict.items()}
    if quant.prune_ones > 0:
        formats = {name: storage_of(name, tensor, quant).format for name, tensor in state_dict.items()}
        below_int8 = [name for name, fmt in formats.items() if fmt in QMAX.keys() - {"int8"}]
        coded = prune_ones(coded, below_int8, quant.prune_ones)
    return coded


def _encode(name: str, tensor: Tensor, quant: QuantConfig) -> CodedTensor:
    how = storage_of(name, tensor, quant)
    if how.format in QMAX:
        return encode_integer(tensor, how, quant)
    if how.format in FLOAT_FORMATS:
        return encode_float(tensor, how.format)
    return CodedTensor(tensor, None, tensor.dtype)


def dequantize(coded: Mapping[str, CodedTensor]) -> dict[str, Tensor]:
    """The state dict that a model loads from the stored tensors."""
    return {name: decode(tensor) for name, tensor in coded.items()}
