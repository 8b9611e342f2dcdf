"""Policy: which tensor of a state dict is stored in which format, by class of name and by size."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatch, fnmatchcase
from typing import Any

import torch
from torch import Tensor

from golf.artifact.quant.drift import corrected
from golf.artifact.quant.formats import (
    FLOAT_DTYPES,
    QMAX,
    CodedTensor,
    CodedTensors,
    Tech,
    Tensors,
    decode,
    formats_of,
)
from golf.artifact.quant.gptq import encode_gptq
from golf.artifact.quant.low_rank import A, folded, repair
from golf.artifact.quant.pruning import Pruning, without_smallest
from golf.artifact.quant.sensitivity import STEP, shared_out
from golf.errors import GolfError
from golf.registry import technique_types
from golf.settings.config import QuantConfig, SensitiveConfig, TensorQuant, as_named, tensor_classes, uses_gptq
from golf.settings.quant_config import BY_NAME

CLIP_LOGS = math.log(6), math.log(24)  # of the least and the largest adaptive clip in standard deviations
CONTROL_PATTERNS = ("attn_scale", "mlp_scale", "resid_mix", "q_gain", "skip_weight")  # as in the public scripts


def is_control(name: str, tech: Tech | None = None) -> bool:
    """Tell whether a parameter is a control parameter: a gain or scale, which may be 2-D like `resid_mix`.

    `tech` are the selected techniques, as in `Config.tech`. None means that they are not known, as for the files of
    public scripts: then the names of every technique count.
    """
    selected: Mapping[str, Any] = technique_types() if tech is None else tech
    patterns = (pattern for technique in selected.values() for pattern in technique.control_names)
    return any(fnmatchcase(name, pattern) for pattern in patterns) or any(part in name for part in CONTROL_PATTERNS)


def tensor_class(name: str) -> str:
    """Return `embed`, `mlp`, `attn` or `other`: the field of `QuantConfig` that decides on the tensor."""
    if re.search("tok_emb|lm_head", name):
        return "embed"
    if ".mlp." in name or ".further_mlps." in name:
        return "mlp"
    return "attn" if ".attn." in name else "other"


def storage_class(name: str, tech: Tech | None = None) -> str:
    """Return the class that byte tables group by: `control` for control parameters, else `tensor_class`."""
    return "control" if is_control(name, tech) else tensor_class(name)


def storage_of(name: str, tensor: Tensor, quant: QuantConfig, tech: Tech | None = None) -> TensorQuant:
    """Return the settings of the tensor's class with the format that this tensor gets.

    Integers and booleans get the format `raw`: they are stored unchanged. `quant.by_name` wins over all other rules,
    then comes the rule for small tensors. `tech` decides which of those are control parameters, see `is_control`.
    """
    settings = tensor_classes(quant)[tensor_class(name)]
    if not tensor.is_floating_point():
        return dataclasses.replace(settings, format="raw")
    for pattern, rule in quant.by_name.items():
        if fnmatch(name, pattern):
            return as_named(settings, rule)
    fmt = settings.format
    if tensor.numel() <= quant.small_numel:
        fmt = quant.control_format if is_control(name, tech) else "fp16"
    return dataclasses.replace(settings, format=fmt)


def unmatched_patterns(quant: QuantConfig, names: Iterable[str]) -> list[str]:
    """Return a sentence for every pattern of `quant.by_name` that is the name of no tensor."""
    known = list(names)
    unmatched = [pattern for pattern in quant.by_name if not any(fnmatch(name, pattern) for name in known)]
    return [f"quant.by_name.{pattern} is the name of no tensor, and changes nothing." for pattern in unmatched]


def quantize(
    state_dict: Tensors, quant: QuantConfig, hessians: Tensors | None = None, tech: Tech | None = None
) -> dict[str, CodedTensor]:
    """Quantize every tensor of a state dict; the result is on the CPU. `dequantize` is the inverse.

    GPTQ takes `hessians` from `golf.calibrate` and works on their device. A matrix without a Hessian is rounded to the
    nearest code. `tech` are the selected techniques, see `is_control`. Raises `GolfError` if the Hessians are missing
    or weights are not finite.
    """
    if hessians is None and uses_gptq(quant):
        how = "give golf.calibrate(state_dict, cfg) as hessians"
        raise GolfError(f"quant={quant.name} rounds by GPTQ, which needs the model's inputs: {how}.")
    if quant.gptq.drift:
        state_dict = corrected(state_dict, hessians or {})
    if quant.step_sensitivity > 0:
        quant = with_measured_steps(quant, state_dict, hessians or {})
    if quant.sensitive.top > 0:
        quant = with_sensitive(quant, state_dict, hessians or {})
    if quant.clip_sensitivity > 0:
        quant = with_adaptive_clips(quant, state_dict, hessians or {})
    if quant.prune.weights > 0:
        state_dict = {name: without_smallest(tensor, quant) for name, tensor in state_dict.items()}
    found = hessians or {}
    coded = {name: _encode(name, tensor, quant, found.get(name), tech) for name, tensor in state_dict.items()}
    # Pruning counts codes, so it follows rounding. Repair comes last and mends the error of both.
    if quant.prune.fraction > 0:
        pruning = Pruning(coded, below_int8(state_dict, quant))
        coded = pruning.first(int(quant.prune.fraction * pruning.most))
    if quant.lqer.rank > 0:
        matrices = [name for name in below_int8(state_dict, quant) if state_dict[name].ndim == 2]
        coded = repair(coded, state_dict, matrices, quant, hessians or {})
    return coded


def quantize_alone(
    name: str, weights: Tensors, quant: QuantConfig, hessians: Tensors, tech: Tech, repaired: Collection[str]
) -> dict[str, CodedTensor]:
    """Quantize one tensor, with low-rank factors if it is among the `repaired`, which are chosen among all."""
    if name not in repaired:
        quant = dataclasses.replace(quant, lqer=dataclasses.replace(quant.lqer, rank=0))
    return quantize({name: weights[name]}, quant, hessians, tech)


def repaired_names(weights: Tensors, quant: QuantConfig, hessians: Tensors, tech: Tech) -> set[str]:
    """Return the names of the matrices that get low-rank factors when all are rounded at once."""
    if quant.lqer.rank == 0:
        return set()
    coded = quantize(weights, quant, hessians, tech)
    return {name for name in coded if name + A in coded}


def below_int8(state_dict: Tensors, quant: QuantConfig) -> list[str]:
    """Return the names of the tensors that are stored in integer formats of fewer than eight bits."""
    formats = {name: storage_of(name, tensor, quant).format for name, tensor in state_dict.items()}
    return [name for name, fmt in formats.items() if fmt in QMAX.keys() - {"int8"}]


def with_sensitive(quant: QuantConfig, state_dict: Tensors, hessians: Tensors) -> QuantConfig:
    """Return `quant` with int6 for the matrices below int8 of the largest trace of the Hessian.

    Source: record 2026-03-31_ParallelResiduals. Without Hessians, as for estimates of bytes, the first ones get it,
    because the inputs of early layers are the largest.
    """
    matrices = [n for n in below_int8(state_dict, quant) if state_dict[n].ndim == 2 and (not hessians or n in hessians)]
    # Matrices of equal trace, as those of queries and keys, keep their order.
    matrices.sort(key=lambda name: -float(hessians[name].trace()) if hessians else 0.0)
    chosen = {name: storage_of(name, state_dict[name], quant) for name in matrices[: quant.sensitive.top]}
    return _with_rules(quant, {n: dataclasses.replace(how, format="int6") for n, how in chosen.items()})


def with_adaptive_clips(quant: QuantConfig, state_dict: Tensors, hessians: Tensors) -> QuantConfig:
    """Return `quant` with the clips of `quant.clip_sensitivity` for the matrices with known inputs (PR #1962)."""
    rules = {name: storage_of(name, state_dict[name], quant) for name in below_int8(state_dict, quant)}
    rules = {n: h for n, h in rules.items() if n in hessians and h.clip == "std" and tensor_class(n) != "embed"}
    spreads = [hessians[n].diagonal().mean().cpu().double() * state_dict[n].double().var(1).mean().cpu() for n in rules]
    if not rules:
        return quant
    falls = quant.clip_sensitivity * torch.stack(spreads).log()
    sizes = torch.tensor([state_dict[name].numel() for name in rules], dtype=torch.float64)
    wanted = torch.tensor([math.log(how.clip_k) for how in rules.values()], dtype=torch.float64)
    clips = zip(rules.items(), shared_out(wanted, falls, sizes, CLIP_LOGS).exp().tolist(), strict=True)
    return _with_rules(quant, {name: dataclasses.replace(how, clip_k=k) for (name, how), k in clips})


def with_measured_steps(quant: QuantConfig, state_dict: Tensors, hessians: Tensors) -> QuantConfig:
    """Return `quant` with the clips of single matrices multiplied by the factors among the `hessians`."""
    rules = {name: storage_of(name, tensor, quant) for name, tensor in state_dict.items() if name + STEP in hessians}
    clips = {name: how.clip_k * float(hessians[name + STEP]) for name, how in rules.items()}
    return _with_rules(quant, {name: dataclasses.replace(how, clip_k=clips[name]) for name, how in rules.items()})


def _with_rules(quant: QuantConfig, rules: Mapping[str, TensorQuant]) -> QuantConfig:
    """Return `quant` with what `rules` say of single tensors, by name."""
    own = {name: {key: getattr(how, key) for key in BY_NAME} for name, how in rules.items()}
    # The first pattern that fits counts, and a rule may name the very matrix.
    others = {pattern: rule for pattern, rule in quant.by_name.items() if pattern not in own}
    return dataclasses.replace(quant, by_name=own | others)


def rounded_to_nearest(quant: QuantConfig) -> QuantConfig:
    """Return `quant` without GPTQ, low-rank repair and formats by sensitivity, which need more than one tensor.

    Byte estimates use it.
    """
    nearest: Any = {
        n: dataclasses.replace(how, rounding="nearest", columns=0.0, finer_columns=0)
        for n, how in tensor_classes(quant).items()
    }
    lqer = dataclasses.replace(quant.lqer, rank=0)
    return dataclasses.replace(quant, **nearest, lqer=lqer, sensitive=SensitiveConfig())


def _encode(name: str, tensor: Tensor, quant: QuantConfig, hessian: Tensor | None, tech: Tech | None) -> CodedTensor:
    tensor, how, formats = tensor.detach(), storage_of(name, tensor, quant, tech), formats_of(tech)
    if how.format not in formats:
        return CodedTensor(tensor.cpu(), None, tensor.dtype)
    if how.format not in FLOAT_DTYPES and not tensor.isfinite().all():
        raise GolfError(f"{name} has weights that are not finite, which no integer stands for: train it again.")
    if how.rounding != "nearest" and how.format in QMAX and hessian is not None and tensor.ndim == 2:
        try:
            return encode_gptq(tensor, how, quant, hessian)
        except GolfError as error:
            raise GolfError(f"{name} cannot be rounded by GPTQ: {error}.") from error
    return formats[how.format].encode(tensor.cpu(), how, quant)


def dequantize_as(coded: CodedTensors, quant: QuantConfig) -> dict[str, Tensor]:
    """Return the state dict of tensors stored under `quant`, as `dequantize` does without knowing the settings."""
    values = {name: decode(tensor) for name, tensor in coded.items()}
    return folded(values) if quant.lqer.rank > 0 else values


def dequantize(coded: CodedTensors) -> dict[str, Tensor]:
    """Return the state dict that a model loads from the stored tensors."""
    return folded({name: decode(tensor) for name, tensor in coded.items()})
