"""Inspection of an artifact: format, entropy, coded bytes and reconstruction error of every tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from golf.artifact.codec.codecs import CODEC_IDS
from golf.artifact.container import MAGIC, load, read_file
from golf.artifact.header import entry_of
from golf.artifact.quant.formats import FLOAT_DTYPES, QMAX, CodedTensor, CodedTensors, Tensors
from golf.artifact.quant.policy import dequantize, storage_class
from golf.errors import GolfError

FLOAT_NAMES = {dtype: name for name, dtype in FLOAT_DTYPES.items()}


@dataclass(frozen=True)
class InspectedTensor:
    """The format, bytes and rounding error of one tensor of an artifact."""

    name: str
    tensor_class: str  # embed | attn | mlp | other | control
    shape: tuple[int, ...]
    format: str  # narrowest format that holds its codes; dtype of a tensor without codes
    params: int
    stored_bytes: int  # codes at one byte each, plus scales
    entropy_bits: float  # order-0 entropy of codes and scales together
    coded_bytes: float  # share of the file, see `inspect_file`
    error: float | None  # RMS(w - ŵ) / RMS(w); None without the weights


@dataclass(frozen=True)
class Inspection:
    """An artifact file and its tensors."""

    layout: str
    file_bytes: int
    tensors: tuple[InspectedTensor, ...]

    @property
    def entropy_bytes(self) -> float:
        return sum(t.entropy_bits for t in self.tensors) / 8


def inspect_file(path: Path, weights: Tensors | None = None) -> Inspection:
    """Inspect an artifact. `weights` are those before quantization.

    Byte codecs compress all tensors together, so the file's bytes are shared out in proportion to order-0 entropy. The
    entropy coder's bytes are counted per tensor. The error is that of the matrix that the model loads, low-rank repair
    included. Raises `GolfError` for a foreign or damaged file.
    """
    layout, file_bytes, codec, coded = _read(path)
    entropy = {name: stored_entropy_bits(tensor) for name, tensor in coded.items()}
    sizes = _coded_bytes(file_bytes, codec, coded, entropy)
    loaded = dequantize(coded) if weights else {}
    rows = []
    for name, tensor in coded.items():
        shape, error = tuple(tensor.data.shape), _error(name, loaded.get(name), (weights or {}).get(name))
        stored = _format(tensor), tensor.data.numel(), tensor.payload_bytes
        rows.append(InspectedTensor(name, storage_class(name), shape, *stored, entropy[name], sizes[name], error))
    return Inspection(layout, file_bytes, tuple(rows))


def stored_entropy_bits(coded: CodedTensor) -> float:
    """Return the order-0 entropy of a stored tensor in bits: of its codes, and of floats per byte plane."""
    planes = [coded.data] if coded.data.dtype == torch.int8 else _byte_planes(coded.data)
    # The scales of a technique's format may be none, and torch does not view an empty tensor as bytes.
    planes += _byte_planes(coded.scale) if coded.scale is not None and coded.scale.numel() else []
    planes += [coded.columns] if coded.columns is not None else []
    return sum(_entropy_bits(plane) for plane in planes)


def _byte_planes(values: Tensor) -> list[Tensor]:
    return list(values.contiguous().flatten().view(torch.uint8).view(-1, values.dtype.itemsize).T)


def _entropy_bits(symbols: Tensor) -> float:
    # bincount takes no negative numbers, and codes go down to -128.
    counts = torch.bincount(symbols.flatten().to(torch.int64) + 128).double()
    # A symbol that does not occur takes no bits, but its logarithm is infinite.
    counts = counts[counts > 0]
    return float(-(counts * (counts / counts.sum()).log2()).sum())


def _coded_bytes(file_bytes: int, codec: str, coded: CodedTensors, entropy: Mapping[str, float]) -> dict[str, float]:
    """Return each tensor's share of the file, in bytes."""
    counted: dict[str, float] = {}
    if codec == "context":
        # It imports numba, which only this codec needs.
        from golf.artifact.codec.context import coded_bytes

        entries = [(entry_of(name, tensor), tensor) for name, tensor in coded.items()]
        apart = [(entry, tensor) for entry, tensor in entries if entry.has_codes]
        counted = {entry.name: float(size) for (entry, _), size in zip(apart, coded_bytes(apart), strict=True)}
    # The rest, header included, was compressed as one piece, so its bytes can only be shared out.
    rest = file_bytes - sum(counted.values())
    of_rest = sum(bits for name, bits in entropy.items() if name not in counted)
    return counted | {n: rest * bits / max(of_rest, 1.0) for n, bits in entropy.items() if n not in counted}


def _read(path: Path) -> tuple[str, int, str, dict[str, CodedTensor]]:
    """Return layout, file size in bytes, codec and tensors."""
    artifact, content = load(path), read_file(path)
    codec = next(name for name, number in CODEC_IDS.items() if number == content[len(MAGIC) + 1])
    return f"golf, {codec}", len(content), codec, artifact.coded


def _format(tensor: CodedTensor) -> str:
    if tensor.scale is None:
        return FLOAT_NAMES.get(tensor.data.dtype, str(tensor.data.dtype).removeprefix("torch."))
    # In int8 the magnitude of -128 would overflow.
    largest = int(tensor.data.to(torch.int16).abs().max()) if tensor.data.numel() else 0
    own = tensor.own.name if tensor.own is not None else ""
    narrowest = own or next((name for name, qmax in reversed(QMAX.items()) if largest <= qmax), "int8")
    steps = "column steps" if tensor.columns is not None else None
    on_trellis = f"trellis of {tensor.states}" if tensor.states > 1 else None
    return ", ".join(word for word in (narrowest, steps, on_trellis, "rotated" if tensor.rotated else "") if word)


def _error(name: str, loaded: Tensor | None, weight: Tensor | None) -> float | None:
    if loaded is None or weight is None or not weight.is_floating_point():
        return None
    if weight.shape != loaded.shape:
        stored, given = tuple(loaded.shape), tuple(weight.shape)
        raise GolfError(f"{name} is {stored} in the artifact and {given} in the weights: give the weights of that run.")
    # In double precision, so that the small errors of wide formats are not those of the subtraction.
    exact = weight.double()
    size = exact.square().mean().sqrt()
    return float((loaded.double() - exact).square().mean().sqrt() / size) if size > 0 else 0.0


def totals_by_class(tensors: Sequence[InspectedTensor]) -> list[InspectedTensor]:
    """Return one row per class. Its error is the root mean square over the class, weighted by parameters."""
    rows = []
    for name in dict.fromkeys(t.tensor_class for t in tensors):
        mine = [t for t in tensors if t.tensor_class == name]
        known = [(t.params, t.error) for t in mine if t.error is not None]
        total = sum(params for params, _ in known)
        rows.append(
            InspectedTensor(
                f"all {name}",
                name,
                (),
                ", ".join(sorted({t.format for t in mine})),
                sum(t.params for t in mine),
                sum(t.stored_bytes for t in mine),
                sum(t.entropy_bits for t in mine),
                sum(t.coded_bytes for t in mine),
                (sum(n * e * e for n, e in known) / total) ** 0.5 if total else None,
            )
        )
    return rows
