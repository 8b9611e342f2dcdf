"""Bytes of an artifact by codec and layout, against the order-0 entropy of its codes, and seconds to pack and unpack.

`python scripts/bench_codecs.py` takes Gaussian weights of the 11-layer record's shapes; `--weights FILE` takes a run's
`final_model.safetensors`. `--formats trellis` rounds them on a trellis with steps of columns, for inputs of unequal
variance, in minutes. The entropy is exact: of each tensor's own codes, 16 bits a scale, and of every byte plane of all
other values; no header. Every file is read back and compared. `--lrzip` adds the public per-role recipe
(PR #1855), which needs Debian's package lrzip.
"""

import argparse
import dataclasses
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # for the folder bench/, which is no part of the package

import torch
from safetensors.torch import load_file

from bench.packing import lrzip_bytes
from golf.artifact.container import pack, unpack
from golf.artifact.header import entry_of
from golf.artifact.quant.formats import CodedTensor
from golf.artifact.quant.policy import quantize
from golf.settings.config import ModelConfig, QuantConfig, TensorQuant, uses_gptq

WIDTH, MLP, KV, VOCAB = 512, 2048, 256, 8192
MATRIX_RMS = 0.155  # RMS in the public int6 records, whose step has a floor: 4.8 steps
INT6 = TensorQuant("int6")


def sdclip(embed: TensorQuant) -> QuantConfig:
    """Return steps of k standard deviations: record 2026-04-05_SP8192 with k 20 for an int8 embedding."""
    matrices = TensorQuant("int6", clip="std", clip_k=12.85)
    return QuantConfig(attn=matrices, mlp=matrices, embed=embed, scale_floor="eps")


def trellis() -> QuantConfig:
    """Return steps of columns and a trellis of eight states, as `quant=trellis` has them."""
    embed = TensorQuant("int8", clip="matrix_std", clip_k=20.0, rounding="trellis", columns=0.7)
    matrices = dataclasses.replace(embed, format="int6", clip_k=12.85)
    return QuantConfig(attn=matrices, mlp=matrices, embed=embed, scale_floor="eps")


FORMATS = {
    "sdclip": sdclip(TensorQuant("int8", clip="std", clip_k=20.0)),
    "sdclip_int7": sdclip(TensorQuant("int7", clip="std", clip_k=15.0)),
    "int8_rowmax": QuantConfig(scale_floor="eps"),
    "int6_rowmax": QuantConfig(attn=INT6, mlp=INT6, scale_floor="eps"),
    "int6_floor": QuantConfig(attn=INT6, mlp=INT6),
    "trellis": trellis(),
}
CODECS = {
    "zlib-9": QuantConfig(codec="zlib", codec_level=9),
    "zlib-9, packed bits": QuantConfig(codec="zlib", codec_level=9, layout=["pack_bits"]),
    "zstd-22": QuantConfig(codec="zstd", codec_level=22),
    "zstd-22, by role, byte planes": QuantConfig(codec="zstd", codec_level=22, layout=["by_role", "byte_planes"]),
    "lzma-9": QuantConfig(codec="lzma", codec_level=9),
    "brotli-11": QuantConfig(codec="brotli", codec_level=11),
    "brotli-11, byte planes": QuantConfig(codec="brotli", codec_level=11, layout=["byte_planes"]),
    "brotli-11, by role, byte planes": QuantConfig(codec="brotli", codec_level=11, layout=["by_role", "byte_planes"]),
    "brotli-11, sorted rows, byte planes": QuantConfig(
        codec="brotli", codec_level=11, layout=["sort_rows", "byte_planes"]
    ),
    "brotli-11, packed bits": QuantConfig(codec="brotli", codec_level=11, layout=["pack_bits"]),
    "context": QuantConfig(codec="context"),
}


def simulated(layers: int) -> dict[str, torch.Tensor]:
    """Return independent Gaussian weights in the matrices of the record with `layers` layers."""
    shapes = {"tok_emb.weight": (VOCAB, WIDTH)}
    for i in range(layers):
        attn = {"c_q": (WIDTH, WIDTH), "c_k": (KV, WIDTH), "c_v": (KV, WIDTH), "proj": (WIDTH, WIDTH)}
        shapes |= {f"blocks.{i}.attn.{name}.weight": shape for name, shape in attn.items()}
        shapes |= {f"blocks.{i}.mlp.fc.weight": (MLP, WIDTH), f"blocks.{i}.mlp.proj.weight": (WIDTH, MLP)}
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) * MATRIX_RMS for name, shape in shapes.items()}


def coded_as(name: str, weights: dict[str, torch.Tensor], small_numel: int) -> dict[str, CodedTensor]:
    """Return the weights in one of FORMATS."""
    quant = dataclasses.replace(FORMATS[name], small_numel=small_numel)
    return quantize(weights, quant, simulated_hessians(weights) if uses_gptq(quant) else None)


def simulated_hessians(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return Hessians `[in, in]` of correlated Gaussian inputs whose deviations spread by a factor of e."""
    generator, hessians = torch.Generator().manual_seed(1), dict[int, torch.Tensor]()
    for tensor in weights.values():
        width = tensor.shape[-1]
        if tensor.ndim == 2 and width not in hessians:
            mixed = torch.eye(width) + torch.randn(width, width, generator=generator) / width**0.5
            inputs = torch.randn(2 * width, width, generator=generator) @ mixed
            inputs *= torch.randn(width, generator=generator).exp()
            hessians[width] = inputs.T @ inputs
    return {name: hessians[tensor.shape[-1]] for name, tensor in weights.items() if tensor.ndim == 2}


def entropy_bytes(symbols: torch.Tensor) -> float:
    """Return the order-0 entropy of all symbols together, in bytes."""
    counts = torch.bincount(symbols.flatten().to(torch.int64) + 128).double()
    counts = counts[counts > 0]
    return float(-(counts * (counts / counts.sum()).log2()).sum()) / 8


def reference_bytes(coded: dict[str, CodedTensor]) -> float:
    """Return the bytes of codes at each tensor's entropy, scales as stored, and other values at their byte planes'."""
    total, planes = 0.0, dict[tuple[int, int], list[torch.Tensor]]()
    for name, tensor in coded.items():
        if entry_of(name, tensor).has_codes and tensor.scale is not None:
            total += entropy_bytes(tensor.data) + tensor.scale.nbytes
            continue
        width = tensor.data.dtype.itemsize
        for i, plane in enumerate(tensor.data.contiguous().flatten().view(torch.uint8).view(-1, width).T):
            planes.setdefault((width, i), []).append(plane)
    return total + sum(entropy_bytes(torch.cat(parts)) for parts in planes.values())


def same(one: dict[str, CodedTensor], other: dict[str, CodedTensor]) -> bool:
    """Tell whether all codes, values and scales are equal."""

    def equal(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
        return a is None and b is None if a is None or b is None else torch.equal(a, b)

    return all(equal(one[n].data, t.data) and equal(one[n].scale, t.scale) for n, t in other.items())


def rows(coded: dict[str, CodedTensor], names: list[str], with_lrzip: bool) -> Iterator[tuple[str, int, float, float]]:
    """Yield codec, bytes, seconds to pack and to unpack."""
    model = ModelConfig()
    for name in names:
        start = time.perf_counter()
        content = pack(coded, model, CODECS[name])
        middle = time.perf_counter()
        restored = unpack(content)
        restored.state_dict()
        yield name, len(content), middle - start, time.perf_counter() - middle
        # Compared after the clock has been read.
        assert same(restored.coded, coded), name
    if with_lrzip:
        start = time.perf_counter()
        yield "lrzip -z for each role, rest brotli-11", lrzip_bytes(coded), time.perf_counter() - start, float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, help="a .safetensors file; simulated weights without")
    parser.add_argument("--layers", type=int, default=11, help="layers of the simulated record (default: 11)")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=["sdclip", "int8_rowmax", "int6_floor"])
    parser.add_argument("--codecs", nargs="+", choices=CODECS, default=list(CODECS))
    parser.add_argument("--small-numel", type=int, default=3136, help="tensors of a checkpoint up to this size: fp16")
    parser.add_argument("--lrzip", action="store_true")
    args = parser.parse_args()
    if args.lrzip and not shutil.which("lrzip"):
        parser.error("--lrzip needs lrzip: apt-get install lrzip")
    weights = load_file(args.weights) if args.weights else simulated(args.layers)
    if "context" in args.codecs:
        start = time.perf_counter()
        # A first small file, so that compiling is not counted as packing.
        pack(coded_as("sdclip", {"x": torch.randn(8, 4)}, 0), ModelConfig(), CODECS["context"])
        print(f"compiling or loading the entropy coder: {time.perf_counter() - start:.1f} s\n")
    for name in args.formats:
        start = time.perf_counter()
        coded = coded_as(name, weights, args.small_numel if args.weights else 0)
        seconds = time.perf_counter() - start
        codes = sum(t.data.numel() for n, t in coded.items() if entry_of(n, t).has_codes)
        reference = reference_bytes(coded)
        print(f"{name}: {codes:,} codes in {len(coded)} tensors, order-0 entropy {reference:,.0f} bytes")
        print(f"rounded in {seconds:.1f} s\n")
        print("| codec | bytes | / entropy | pack s | unpack s |\n|---|---|---|---|---|", flush=True)
        for codec, size, packing, unpacking in rows(coded, args.codecs, args.lrzip):
            print(f"| {codec} | {size:,} | {size / reference:.4f} | {packing:.1f} | {unpacking:.1f} |", flush=True)
        print()


if __name__ == "__main__":
    main()
