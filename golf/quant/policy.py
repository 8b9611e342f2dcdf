"""Which tensor of a state dict is stored in which format, by class of name and by size."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from fnmatch import fnmatch

from torch import Tensor

from golf.config import QuantConfig
from golf.model.names import is_control
from golf.quant.formats import QMAX, CodedTensor, decode, encode_float, encode_integer
from golf.quant.pruning import prune_ones
from golf.quant.rotation import rotate

FLOAT_FORMATS = ("fp16", "fp32")


def tensor_class(name: str) -> str:
    """`embed`, `mlp`, `attn` or `other`, the keys of `QuantConfig` that hold their formats."""
    if "tok_emb" in name or "lm_head" in name:
        return "embed"
    if ".mlp." in name:
        return "mlp"
    return "attn" if ".attn." in name else "other"


def storage_class(name: str) -> str:
    """`tensor_class`, but `control` for the gains and scales of the residual stream: what tables of bytes go by."""
    return "control" if is_control(name) else tensor_class(name)


def format_of(name: str, tensor: Tensor, quant: QuantConfig) -> str:
    """`int8` … `int4`, `fp16`, `fp32` or `raw` (integers and booleans stay as they are)."""
    if not tensor.is_floating_point():
        return "raw"
    for pattern, fmt in quant.by_name.items():
        if fnmatch(name, pattern):
            return fmt
    if tensor.numel() <= quant.small_numel:
        return "fp32" if is_control(name) else "fp16"
    return getattr(quant, tensor_class(name))


def quantize(state_dict: Mapping[str, Tensor], quant: QuantConfig) -> dict[str, CodedTensor]:
    """Every tensor of a state dict in its stored form, on the CPU. `dequantize` is the way back."""
    coded = {name: _encode(name, tensor.detach().cpu(), quant) for name, tensor in state_dict.items()}
    if quant.prune_ones > 0:
        below_int8 = [n for n, t in state_dict.items() if format_of(n, t, quant) in QMAX.keys() - {"int8"}]
        coded = prune_ones(coded, below_int8, quant.prune_ones)
    return coded


def _encode(name: str, tensor: Tensor, quant: QuantConfig) -> CodedTensor:
    fmt = format_of(name, tensor, quant)
    if fmt in QMAX:
        return encode_as_configured(tensor, fmt, quant)
    if fmt in FLOAT_FORMATS:
        return encode_float(tensor, fmt)
    return CodedTensor(tensor, None, tensor.dtype)


def encode_as_configured(tensor: Tensor, fmt: str, quant: QuantConfig) -> CodedTensor:
    """Integer codes of one tensor by the rules of `quant`; int8 has range enough for neither search nor rotation."""
    plain = fmt == "int8"
    rotated = quant.rotation == "hadamard" and not plain and tensor.ndim == 2
    coded = encode_integer(
        rotate(tensor.float()) if rotated else tensor,
        fmt,
        clip_quantile=quant.clip_quantile,
        scale_floor=quant.scale_floor,
        clip_search=() if plain else quant.clip_search,
    )
    return dataclasses.replace(coded, dtype=tensor.dtype, rotated=rotated)


def dequantize(coded: Mapping[str, CodedTensor]) -> dict[str, Tensor]:
    """The state dict that a model loads from the stored tensors."""
    return {name: decode(tensor) for name, tensor in coded.items()}
