"""A model that is rounded in stages: some of its tensors are coded, the others still have the values of training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from torch import Tensor

from golf.artifact.quant.formats import FLOAT_DTYPES, CodedTensor, CodedTensors, Tech, Tensors
from golf.artifact.quant.policy import dequantize_as, quantize_alone, storage_of
from golf.settings.config import QuantConfig


@dataclass
class PartlyRounded:
    """`weights` are those of the whole model on the CPU, in its order: decoded where a tensor is coded."""

    quant: QuantConfig
    tech: Tech
    weights: dict[str, Tensor]
    hessians: dict[str, Tensor]  # for GPTQ, of the matrices that are not coded
    repaired: set[str]  # names of the matrices that get low-rank factors
    coded: dict[str, CodedTensors] = field(default_factory=dict)  # by the tensor's name, with its factors

    def left(self) -> dict[str, Tensor]:
        """Return the tensors that are not coded yet."""
        return {name: tensor for name, tensor in self.weights.items() if name not in self.coded}

    def code(self, name: str, quant: QuantConfig) -> dict[str, CodedTensor]:
        """Return a tensor in its stored form under `quant`, with its factors, and leave the model as it is."""
        return quantize_alone(name, self.weights, quant, self.hessians, self.tech, self.repaired)

    def fix(self, coded: Iterable[tuple[str, CodedTensors]]) -> None:
        """Take over tensors that are coded."""
        for name, tensors in coded:
            self.coded[name], self.weights[name] = tensors, dequantize_as(tensors, self.quant)[name]

    def whole(self, quant: QuantConfig) -> dict[str, CodedTensor]:
        """Return the stored form of the whole model in its order, with what is left coded under `quant`."""
        parts = (self.coded.get(name) or self.code(name, quant) for name in self.weights)
        return {name: tensor for part in parts for name, tensor in part.items()}


def coarse_matrices(weights: Tensors, quant: QuantConfig, tech: Tech) -> list[str]:
    """Return the names of the matrices that are stored in codes."""
    names = [name for name, tensor in weights.items() if tensor.ndim == 2]
    formats = {name: storage_of(name, weights[name], quant, tech).format for name in names}
    return [name for name in names if formats[name] not in (*FLOAT_DTYPES, "raw")]


def rounding_stages(names: Sequence[str], by_use: Sequence[Sequence[str]], first: str, by: str) -> list[list[str]]:
    """Return the matrices `names` in stages, in the order of their rounding.

    `by_use` are those that share an input, in the order of the forward pass. The embedding `first` and all that no
    layer multiplies by come first. With `by="block"` all of a layer are one stage.
    """
    later = [[name for name in stage if name in names] for stage in by_use if first not in stage]
    used = {name for stage in later for name in stage}
    stages = [[name for name in names if name not in used], *later]
    if by == "block":
        grouped = groupby(stages, key=lambda stage: _layer(stage[0]) if stage else "")
        stages = [[name for stage in same for name in stage] for _, same in grouped]
    return [stage for stage in stages if stage]


def _layer(name: str) -> str:
    """Return `blocks.3` of the name of a tensor in this layer, and other names as they are."""
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0] == "blocks" else name
