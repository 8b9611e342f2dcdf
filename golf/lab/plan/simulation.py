"""Simulated artifacts: Gaussian rows of the right shapes, sent through the run's own quantizer and codec.

Rows of trained matrices are Gaussian enough: with a scale of k standard deviations, brotli stores 489 public artifacts
1.8 to 2.0 % above the entropy of Gaussian codes (PR #2046 and others). A sample through the real code accounts for
clips, floors, rotations, row scales and the codec's overhead at once. The size of the weights matters only if the scale
has a floor; otherwise the codes are the same at any size.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch

import torch
from torch import Tensor

from golf.artifact.container import pack
from golf.artifact.quant.columns import CODES_PER_OCTAVE, column_steps
from golf.artifact.quant.formats import LARGEST_CODE, QMAX, CodedTensor, CodedTensors, Tensors
from golf.artifact.quant.policy import quantize, rounded_to_nearest, tensor_class
from golf.lab.artifacts.inspection import stored_entropy_bits
from golf.lab.plan.tensors import StoredTensor, StoredTensors, weights_by_role
from golf.lab.plan.weight_size import uniform_start
from golf.settings.config import Config, tensor_classes
from golf.tables import grouped

WHOLE_WEIGHTS = 1 << 20  # most weights of a model that is simulated whole
SAMPLE_WEIGHTS = 1 << 18  # weights of each part of a larger model; codecs are within 0.3 % of their rate on millions
CONTROL_MEAN, CONTROL_STD = 1.0, 0.1  # gains and scales, which start at one and move


Weights = Callable[[StoredTensor, tuple[int, ...]], Tensor]  # (tensor, shape) → sample of its weights of this shape


@dataclasses.dataclass(frozen=True)
class Simulation:
    """Expected bytes of an artifact."""

    by_role: dict[str, float]  # compressed tensors
    container: int  # the file around them

    @property
    def total(self) -> float:
        """Return the bytes of the whole file."""
        return self.container + sum(self.by_role.values())


def gaussian_codes(cfg: Config, tensors: StoredTensors, rms: Mapping[str, float]) -> dict[str, CodedTensor]:
    """Return the codes of Gaussian weights for the same share of the rows of each tensor."""
    return _encode(cfg, tensors, _sample([tensors], _gaussian(cfg, rms)))


def _gaussian(cfg: Config, rms: Mapping[str, float]) -> Weights:
    """Return a sampler of Gaussian weights with a fixed seed."""
    # The same draw every time: differences between two plans come from their settings, not from chance.
    generator = torch.Generator().manual_seed(0)
    tech = frozenset(cfg.tech)

    def weights(tensor: StoredTensor, shape: tuple[int, ...]) -> Tensor:
        drawn = torch.randn(shape, generator=generator)
        if tensor.tensor_class == "control":
            return CONTROL_MEAN + CONTROL_STD * drawn
        size = rms.get(tensor.role, tensor.columns**-0.5)
        # If the predicted size is smaller than that of the initial values, no Gaussian part is left.
        start = min(uniform_start(tensor.role, tech) * tensor.columns**-0.5, size)
        if len(shape) != 2 or not start:
            return drawn * size
        # A uniform distribution over ±a has the standard deviation a / √3, so its width is √12 deviations.
        initial = torch.rand(shape, generator=generator).sub_(0.5) * (math.sqrt(12) * start)
        return drawn * math.sqrt(size**2 - start**2) + initial

    return weights


def simulate(cfg: Config, tensors: StoredTensors, rms: Mapping[str, float]) -> Simulation:
    """Return the bytes of `tensors` with Gaussian weights of the size `rms` by role; 1/√columns for other roles.

    Roles that start from uniform initial values keep those. The bytes are scaled up from samples.
    """
    weights, by_role = _gaussian(cfg, rms), defaultdict[str, float](float)
    for units in _parts(tensors, cfg.quant.codec == "context"):
        sample = _sample(units, weights)
        part = [tensor for unit in units for tensor in unit]
        coded = _encode(cfg, part, sample)
        # The header is counted once for the whole file, so it is taken off here.
        priced = len(_packed(cfg, coded)) - len(_packed(cfg, {n: _emptied(t) for n, t in coded.items()}))
        bits, sampled, weights_in = defaultdict[str, float](float), defaultdict[str, int](int), weights_by_role(part)
        for tensor in part:
            if tensor.name in coded:
                bits[tensor.role] += stored_entropy_bits(coded[tensor.name])
                sampled[tensor.role] += sample[tensor.name].numel()
        # The codec compresses all roles of a part at once; its bytes are divided among them by entropy.
        for role in bits:
            share = bits[role] / max(sum(bits.values()), 1.0)
            by_role[role] += priced * share * weights_in[role] / max(sampled[role], 1)
    # The header names every tensor, so it is priced with all of them, without rows.
    nothing = _encode(cfg, tensors, {t.name: torch.zeros(0, *t.shape[1:], dtype=t.dtype) for t in tensors})
    return Simulation(dict(by_role), len(_packed(cfg, nothing)) + round(_repair_bytes(cfg, tensors)))


def _parts(tensors: StoredTensors, apart: bool) -> list[list[list[StoredTensor]]]:
    """Return the parts that are priced separately, each a list of units that may stand for each other.

    A small model is one unit. A larger one has the layers of equal shapes as units of a part, and parts of one unit
    for all other tensors. With `apart` every role is a part, because golf's own coder learns each role alone.
    """
    # Byte codecs adapt block by block and pay for changes of distribution, so neighbours in the file stay together.
    if apart:
        return list(grouped((tensor.role if tensor.has_codes else "", [tensor]) for tensor in tensors).values())
    if sum(t.numel for t in tensors) <= WHOLE_WEIGHTS:
        return [[list(tensors)]]
    units = grouped(((re.match(r"blocks\.\d+\.", t.name) or [t.role])[0], t) for t in tensors)
    return list(grouped((tuple((t.role, t.shape, t.format) for t in unit), unit) for unit in units.values()).values())


def _sample(units: Sequence[StoredTensors], weights: Weights) -> dict[str, Tensor]:
    """Return weights of as many whole units as the sample holds; some rows of each tensor if one unit is too large."""
    size = max(sum(t.numel for t in units[0]), 1)
    most = WHOLE_WEIGHTS if len(units) == 1 or len(units) * size <= WHOLE_WEIGHTS else SAMPLE_WEIGHTS
    share = min(1.0, most / size)
    sample: dict[str, Tensor] = {}
    for unit in units[: max(1, most // size)]:
        for tensor in unit:
            shape = (math.ceil(tensor.shape[0] * share), *tensor.shape[1:]) if tensor.shape else ()
            sample[tensor.name] = weights(tensor, shape).to(tensor.dtype)
    return sample


def _encode(cfg: Config, tensors: StoredTensors, weights: Tensors) -> dict[str, CodedTensor]:
    """Return the codes of `weights` in the formats of the whole tensors."""
    coded: dict[str, CodedTensor] = {}
    for tensor in tensors:
        # The format is named, because a sample may be small enough to be stored as floats.
        if tensor.name in weights:
            rules = (rule for pattern, rule in cfg.quant.by_name.items() if fnmatch(tensor.name, pattern))
            quant = dataclasses.replace(rounded_to_nearest(cfg.quant), by_name={"*": next(rules, tensor.format)})
            coded |= quantize({tensor.name: weights[tensor.name]}, quant, tech=cfg.tech)
            finer = tensor_classes(cfg.quant)[tensor_class(tensor.name)].finer_columns
            if finer > 0 and len(tensor.shape) == 2 and tensor.format in QMAX:
                coded[tensor.name] = _with_finer_columns(coded[tensor.name], weights[tensor.name], finer)
    return coded


def _with_finer_columns(coded: CodedTensor, w: Tensor, count: int) -> CodedTensor:
    """Return the codes of `w` `[r, c]` with half the step for the first `count` columns, whichever GPTQ takes."""
    assert coded.scale is not None
    columns = torch.where(torch.arange(w.size(1)) < count, -CODES_PER_OCTAVE, 0).to(torch.int8)
    codes = (w / (coded.scale.float()[:, None] * column_steps(columns))).round().clamp(-LARGEST_CODE, LARGEST_CODE)
    return CodedTensor(codes.to(torch.int8), coded.scale, coded.dtype, coded.rotated, columns)


def _repair_bytes(cfg: Config, tensors: StoredTensors) -> float:
    """Return the bytes of the low-rank repair factors, with the bits of their format for each code."""
    lqer = cfg.quant.lqer
    matrices = [t.shape for t in tensors if len(t.shape) == 2 and t.format in QMAX and t.format != "int8"]
    row_bits = column_bits = float(QMAX[lqer.format].bit_length() + 1)
    if lqer.factors == "asymmetric":
        # Two bits for A; four for B, and a scale of sixteen for every group.
        row_bits, column_bits = 2.0, 4.0 + 16 / lqer.group
    widest = sorted(((min(lqer.rank, *shape) * sum(shape), shape) for shape in matrices), reverse=True)[: lqer.top]
    return sum(min(lqer.rank, *s) * (s[0] * row_bits + s[1] * column_bits) for _, s in widest) / 8


def _emptied(tensor: CodedTensor) -> CodedTensor:
    """Return the tensor without rows: a file of such tensors has the same header, which is then subtracted."""
    scale = tensor.scale[:0] if tensor.scale is not None and tensor.scale.ndim else tensor.scale
    return dataclasses.replace(tensor, data=tensor.data.flatten()[:0].view(0, *tensor.data.shape[1:]), scale=scale)


def _packed(cfg: Config, coded: CodedTensors) -> bytes:
    return pack(coded, cfg.model, cfg.quant, cfg.tech)
