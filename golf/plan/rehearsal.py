"""A rehearsal of the artifact: Gaussian rows of the right shapes, through the run's own quantizer and codec.

Rows of trained matrices are Gaussian enough: with a scale of k standard deviations, what brotli makes of 489 public
artifacts lies 1.8 to 2.0 % above the entropy of Gaussian codes (PRs #2046 and others). Sending a sample through the
real code prices clips, floors, rotations, row scales and the codec's overhead at once. Only where the scale has a floor
does the size of the weights matter; everywhere else the codes are the same at any size.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from golf.artifact.codec.entropy import stored_entropy_bits
from golf.artifact.container import pack
from golf.artifact.quant.formats import QMAX, CodedTensor
from golf.artifact.quant.policy import quantize, rounded_to_nearest
from golf.plan.spread import uniform_start
from golf.plan.tensors import StoredTensor
from golf.settings.config import Config

WHOLE_WEIGHTS = 1 << 20  # a model of up to so many is rehearsed whole
SAMPLE_WEIGHTS = 1 << 18  # of each part of a larger one; codecs are then within 0.3 % of what they do to millions
CONTROL_MEAN, CONTROL_STD = 1.0, 0.1  # gains and scales start at one and move


Weights = Callable[[StoredTensor, tuple[int, ...]], Tensor]  # a sample of a tensor's weights of this shape


@dataclasses.dataclass(frozen=True)
class Rehearsal:
    """Expected compressed bytes by role of tensor, and of the file around them."""

    by_role: dict[str, float]
    container: int

    @property
    def total(self) -> float:
        return self.container + sum(self.by_role.values())


def rehearse(
    cfg: Config, tensors: Sequence[StoredTensor], rms: Mapping[str, float], *, apart: bool = False
) -> Rehearsal:
    """Price `tensors` with Gaussian weights; `rms` is their size by role, 1/√columns where it does not say.

    What is left in a matrix of its uniform initial values is not Gaussian. `apart`, every role is compressed alone.
    """
    return _price(cfg, tensors, _gaussian(cfg, rms), apart)


def rehearse_trained(
    cfg: Config, tensors: Sequence[StoredTensor], trained: Mapping[str, Tensor], *, apart: bool = False
) -> Rehearsal:
    """The same with a sample of `trained` weights, rows spread evenly over each tensor."""

    def weights(tensor: StoredTensor, shape: tuple[int, ...]) -> Tensor:
        whole = trained[tensor.name]
        return whole[torch.arange(shape[0]) * whole.size(0) // shape[0]] if shape and whole.numel() else whole

    return _price(cfg, tensors, weights, apart)


def gaussian_codes(cfg: Config, tensors: Sequence[StoredTensor], rms: Mapping[str, float]) -> dict[str, CodedTensor]:
    """Codes of Gaussian weights for a sample of the rows of each of `tensors`, the same share of all."""
    return _encode(cfg, tensors, _sample([tensors], _gaussian(cfg, rms)))


def _gaussian(cfg: Config, rms: Mapping[str, float]) -> Weights:
    generator = torch.Generator().manual_seed(0)
    tech = frozenset(cfg.tech)

    def weights(tensor: StoredTensor, shape: tuple[int, ...]) -> Tensor:
        drawn = torch.randn(shape, generator=generator)
        if tensor.tensor_class == "control":
            return CONTROL_MEAN + CONTROL_STD * drawn
        size = rms.get(tensor.role, tensor.columns**-0.5)
        start = min(uniform_start(tensor.role, tech) * tensor.columns**-0.5, size)
        if len(shape) != 2 or not start:
            return drawn * size
        initial = torch.rand(shape, generator=generator).sub_(0.5) * (math.sqrt(12) * start)
        return drawn * math.sqrt(size**2 - start**2) + initial

    return weights


def _price(cfg: Config, tensors: Sequence[StoredTensor], weights: Weights, apart: bool) -> Rehearsal:
    by_role: dict[str, float] = defaultdict(float)
    for units in _parts(tensors, apart or cfg.quant.codec == "context"):
        sample = _sample(units, weights)
        part = [tensor for unit in units for tensor in unit]
        coded = _encode(cfg, part, sample)
        priced = len(_packed(cfg, coded)) - len(_packed(cfg, {n: _emptied(t) for n, t in coded.items()}))
        bits: dict[str, float] = defaultdict(float)
        weights_in: dict[str, int] = defaultdict(int)
        sampled: dict[str, int] = defaultdict(int)
        for tensor in part:
            weights_in[tensor.role] += tensor.numel
            if tensor.name in coded:
                bits[tensor.role] += stored_entropy_bits(coded[tensor.name])
                sampled[tensor.role] += sample[tensor.name].numel()
        for role in bits:  # the codec takes all of them at once: what it needs is shared out by entropy
            share = bits[role] / max(sum(bits.values()), 1.0)
            by_role[role] += priced * share * weights_in[role] / max(sampled[role], 1)
    nothing = _encode(cfg, tensors, {t.name: torch.zeros(0, *t.shape[1:], dtype=t.dtype) for t in tensors})
    return Rehearsal(dict(by_role), len(_packed(cfg, nothing)) + round(_repair_bytes(cfg, tensors)))


def _parts(tensors: Sequence[StoredTensor], apart: bool) -> list[list[list[StoredTensor]]]:
    """What is priced together, in units that may stand for each other: a small model whole, of a larger one the layers
    that look alike, and anything else by itself.

    Byte codecs adapt block by block and pay for a change of distribution, so what lies side by side is priced so.
    `apart`, as golf's own learns, every role is a part.
    """
    if apart:
        by_role: dict[str, list[list[StoredTensor]]] = defaultdict(list)
        for tensor in tensors:
            by_role[tensor.role if tensor.format in QMAX else ""].append([tensor])
        return list(by_role.values())
    if sum(t.numel for t in tensors) <= WHOLE_WEIGHTS:
        return [[list(tensors)]]
    units: dict[str, list[StoredTensor]] = defaultdict(list)
    for tensor in tensors:
        units[(re.match(r"blocks\.\d+\.", tensor.name) or [tensor.role])[0]].append(tensor)
    alike: dict[tuple[object, ...], list[list[StoredTensor]]] = defaultdict(list)
    for unit in units.values():
        alike[tuple((t.role, t.shape, t.format) for t in unit)].append(unit)
    return list(alike.values())


def _sample(units: Sequence[Sequence[StoredTensor]], weights: Weights) -> dict[str, Tensor]:
    """Weights of as many whole units as the sample holds; of a larger one, some rows of each tensor."""
    size = max(sum(t.numel for t in units[0]), 1)
    most = WHOLE_WEIGHTS if len(units) == 1 or len(units) * size <= WHOLE_WEIGHTS else SAMPLE_WEIGHTS
    share = min(1.0, most / size)
    sample: dict[str, Tensor] = {}
    for unit in units[: max(1, most // size)]:
        for tensor in unit:
            shape = (math.ceil(tensor.shape[0] * share), *tensor.shape[1:]) if tensor.shape else ()
            sample[tensor.name] = weights(tensor, shape).to(tensor.dtype)
    return sample


def _encode(cfg: Config, tensors: Sequence[StoredTensor], weights: Mapping[str, Tensor]) -> dict[str, CodedTensor]:
    """`weights` in the formats that the whole tensors get; a sample may be small where they are not."""
    coded: dict[str, CodedTensor] = {}
    for tensor in tensors:
        if tensor.name in weights:
            quant = dataclasses.replace(rounded_to_nearest(cfg.quant), by_name={"*": tensor.format})
            coded |= quantize({tensor.name: weights[tensor.name]}, quant)
    return coded


def _repair_bytes(cfg: Config, tensors: Sequence[StoredTensor]) -> float:
    """Low-rank factors, as if their codes took the bits of their format: the largest ones, as many as are repaired."""
    lqer = cfg.quant.lqer
    matrices = [t.shape for t in tensors if len(t.shape) == 2 and t.format in QMAX and t.format != "int8"]
    widest = sorted((min(lqer.rank, *shape) * sum(shape) for shape in matrices), reverse=True)[: lqer.top]
    return sum(widest) * (QMAX[lqer.format].bit_length() + 1) / 8 if lqer.rank else 0.0


def _emptied(tensor: CodedTensor) -> CodedTensor:
    scale = tensor.scale[:0] if tensor.scale is not None and tensor.scale.ndim else tensor.scale
    return dataclasses.replace(tensor, data=tensor.data.flatten()[:0].view(0, *tensor.data.shape[1:]), scale=scale)


def _packed(cfg: Config, coded: Mapping[str, CodedTensor]) -> bytes:
    return pack(coded, cfg.model, cfg.quant, cfg.tech)
