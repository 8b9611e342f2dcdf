"""Artifacts of the public scripts, `final_model.*.ptz`: a compressed `torch.save` of one of three layouts.

- `int8_clean_per_row_v1` (the baseline): `quantized`, `scales`, `passthrough`, `dtypes`, …, one tensor a name
- `mixed_int6_int8_per_row_v1` (PR #1559): the same, int6 packed four to three bytes, `qmeta` has bits and shape
- `{"w": {name.q, name.scale | name}, "m": …}` (PR #414 and after): int6 in bytes

The files may be hostile: only tensors and plain containers are unpickled, and decompression is bounded.
"""

from __future__ import annotations

import io
import lzma
import pickle
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import torch
import zstandard
from torch import Tensor

from golf.artifact.quant.formats import CodedTensor

LARGEST_BYTES = 1 << 29  # limit after decompression; 16 MB at four bits a weight hold 32 MB of codes
ZSTD, XZ, ZIP = b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00", b"PK\x03\x04"
FORMAT_KEY = "__quant_format__"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def read_upstream(content: bytes) -> tuple[str, str, dict[str, CodedTensor]]:
    """Return codec, layout and tensors of a public artifact. Raises `ValueError` for anything else."""
    codec, raw = _decompress(content)
    try:
        # torch writes its records uncompressed. The list of records also gives away a hostile archive that would unpack
        # to more.
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > LARGEST_BYTES:
                raise ValueError("it unpacks to more than 512 MiB")
        saved = torch.load(io.BytesIO(raw), map_location="cpu", weights_only=True)
    except (zipfile.BadZipFile, pickle.UnpicklingError, RuntimeError, EOFError, KeyError, TypeError) as error:
        raise ValueError("what it holds is not a torch.save of plain tensors") from error
    layout, coded = _tensors(saved)
    for name, tensor in coded.items():
        _check(name, tensor)
    return codec, layout, coded


def _decompress(content: bytes) -> tuple[str, bytes]:
    """Return the codec and at most `LARGEST_BYTES` of decompressed content."""
    try:
        if content.startswith(ZIP):
            codec, raw = "none", content
        elif content.startswith(ZSTD):
            # A frame states the size of its window, which the reader allocates.
            reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(content)
            # One byte more than allowed is asked for, to tell a file that is too long from one that just fits.
            codec, raw = "zstd", reader.read(LARGEST_BYTES + 1)
        elif content.startswith(XZ):
            decoder = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=1 << 30)
            codec, raw = "lzma", decoder.decompress(content, LARGEST_BYTES + 1)
        else:
            # zlib has no magic number, so it is tried when nothing else fits.
            codec, raw = "zlib", zlib.decompressobj().decompress(content, LARGEST_BYTES + 1)
    except (zlib.error, lzma.LZMAError, zstandard.ZstdError, EOFError, MemoryError) as error:
        raise ValueError("it is neither an artifact of golf nor compressed by zlib, zstd or lzma") from error
    if len(raw) > LARGEST_BYTES:
        raise ValueError("it unpacks to more than 512 MiB")
    return codec, raw


def _tensors(saved: Any) -> tuple[str, dict[str, CodedTensor]]:
    if not isinstance(saved, Mapping):
        raise ValueError("it holds no dictionary of tensors")
    if isinstance(saved.get("w"), Mapping):
        return "w, m", _from_flat(saved["w"])
    if isinstance(saved.get("quantized"), Mapping):
        return str(saved.get(FORMAT_KEY, "quantized, scales, passthrough")), _from_clean(saved)
    if saved and all(isinstance(value, Tensor) for value in saved.values()):
        return "state dict", {name: _plain(value) for name, value in saved.items()}
    raise ValueError("its layout is none of the public scripts' (quantized/scales/passthrough or w/m)")


def _from_clean(saved: Mapping[str, Any]) -> dict[str, CodedTensor]:
    """Read a layout that has a dictionary for each kind of content."""
    coded = {}
    # The baseline's layout has no qmeta, because all its codes are plain int8.
    metas, dtypes = saved.get("qmeta") or {}, saved.get("dtypes") or {}
    for name, codes in saved["quantized"].items():
        meta = metas.get(name) or {}
        if meta.get("bits") == 6 and codes.dtype == torch.uint8:
            codes = unpack_int6(codes, [int(n) for n in meta["shape"]])
        dtype = DTYPES.get(str(dtypes.get(name)).removeprefix("torch."), torch.float32)
        coded[str(name)] = CodedTensor(codes, torch.as_tensor(saved["scales"][name]), dtype)
    return coded | {str(name): _plain(value) for name, value in (saved.get("passthrough") or {}).items()}


def _from_flat(weights: Mapping[str, Tensor]) -> dict[str, CodedTensor]:
    """Read the layout that marks codes and scales by suffixes of their names."""
    coded = {}
    for name, value in weights.items():
        whole = name.removesuffix(".q")
        if name.endswith(".q") and f"{whole}.scale" in weights:
            coded[whole] = CodedTensor(value, torch.as_tensor(weights[f"{whole}.scale"]), torch.float32)
        elif not (name.endswith(".scale") and f"{name.removesuffix('.scale')}.q" in weights):
            coded[name] = _plain(value)
    return coded


def _plain(value: Tensor) -> CodedTensor:
    return CodedTensor(value, None, value.dtype)


def unpack_int6(packed: Tensor, shape: list[int]) -> Tensor:
    """Unpack codes -32 … 31 of the given shape: four codes in three bytes, lowest bits first, offset 32 (PR #1559)."""
    numel = torch.Size(shape).numel()
    # The last group is padded to four codes, hence the rounding up.
    groups = packed.flatten()[: -(-numel // 4) * 3].view(-1, 3).to(torch.int32)
    word = groups[:, 0] | groups[:, 1] << 8 | groups[:, 2] << 16
    codes = torch.stack([(word >> shift & 63) - 32 for shift in (0, 6, 12, 18)], dim=1)
    return codes.flatten()[:numel].to(torch.int8).view(shape)


def _check(name: str, tensor: CodedTensor) -> None:
    """Raise `ValueError` for tensors larger than their storage and for scales that do not fit the codes."""
    for part in (tensor.data, tensor.scale):
        # With strides of zero a few bytes can claim to be a tensor of any shape.
        if part is not None and part.numel() * part.element_size() > part.untyped_storage().nbytes():
            raise ValueError(f"{name} claims to be larger than what is stored of it")
    if tensor.scale is not None and (tensor.data.dtype != torch.int8 or tensor.scale.ndim > 1):
        raise ValueError(f"{name} is not int8 codes with a scale per row or tensor")
    if tensor.scale is not None and tensor.scale.ndim and tensor.scale.numel() != tensor.data.shape[0]:
        raise ValueError(f"{name} has {tensor.scale.numel()} scales for {tuple(tensor.data.shape)} codes")
