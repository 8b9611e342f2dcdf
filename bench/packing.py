"""Seconds from weights to the artifact and back, by number format and codec."""

from __future__ import annotations

import dataclasses
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from bench.machine import seconds_of
from bench.table import Row
from bench.tokens import random_dataset
from golf.artifact.codec.codecs import compress, require_codec
from golf.artifact.container import pack, payload, unpack
from golf.artifact.header import entry_of
from golf.artifact.quant.formats import CodedTensor
from golf.artifact.quant.policy import dequantize, quantize
from golf.errors import MissingError
from golf.settings.config import Config, ModelConfig, QuantConfig, uses_gptq
from golf.training.loop.calibration import calibrate
from golf.training.model.build import build_model

CPU = torch.device("cpu")
CODECS = {"zlib": 9, "zstd": 22, "lzma": 9, "brotli": 11, "context": 0}
LRZIP = ("lrzip", "-q", "-z", "-T", "-L", "9", "-N", "0")  # without -N 0 it would lower its priority
WEIGHT_STD = 0.1  # standard deviation of the random weights, about that of trained matrices


def packing_rows(cfg: Config, rounds: int) -> Iterator[Row]:
    """Yield rows for calibrating and quantizing as configured, then for packing under every codec that is installed."""
    weights = random_weights(cfg)
    params = sum(tensor.numel() for tensor in weights.values())
    formats = f"{cfg.name} {cfg.quant.name}"
    hessians = None
    if uses_gptq(cfg.quant):
        step, dataset = _calibrated_by_one_step(cfg), random_dataset(cfg)
        seconds = [seconds_of(lambda: calibrate(weights, step, dataset), CPU) for _ in range(rounds)]
        yield _row(f"{formats}: calibrate", seconds, f"{step.quant.calibration.tokens:,} tokens")
        hessians = calibrate(weights, step, dataset)
    seconds = [seconds_of(lambda: quantize(weights, cfg.quant, hessians), CPU) for _ in range(rounds)]
    yield _row(f"{formats}: quantize", seconds)
    coded = quantize(weights, cfg.quant, hessians)
    yield _row(f"{formats}: dequantize", [seconds_of(lambda: dequantize(coded), CPU) for _ in range(rounds)])
    for quant in _installed(cfg.quant):
        content = pack(coded, cfg.model, quant, cfg.tech)
        note = f"{len(content):,} bytes, {8 * len(content) / params:.2f} bits a parameter"
        packing = [seconds_of(lambda q=quant: pack(coded, cfg.model, q, cfg.tech), CPU) for _ in range(rounds)]  # type: ignore[misc]
        unpacking = [seconds_of(lambda c=content: unpack(c), CPU) for _ in range(rounds)]  # type: ignore[misc]
        yield _row(f"{formats}: pack {quant.codec}", packing, note)
        yield _row(f"{formats}: unpack {quant.codec}", unpacking)


def random_weights(cfg: Config) -> dict[str, torch.Tensor]:
    """Return Gaussian weights in the model's shapes; a model's starting weights compress unlike trained ones."""
    generator = torch.Generator().manual_seed(cfg.seed)
    state = build_model(cfg).state_dict()
    return {n: (torch.randn(t.shape, generator=generator) * WEIGHT_STD).to(t.dtype) for n, t in state.items()}


def _calibrated_by_one_step(cfg: Config) -> Config:
    """Return `cfg` with calibration on the tokens of one training step; time grows in proportion to the tokens."""
    calibration = dataclasses.replace(cfg.quant.calibration, source="train", tokens=cfg.data.train_batch_tokens)
    return dataclasses.replace(cfg, quant=dataclasses.replace(cfg.quant, calibration=calibration))


def lrzip_bytes(coded: Mapping[str, CodedTensor]) -> int:
    """Return the bytes of the codes of each role as one file for `lrzip -z` and of the rest by brotli (PR #1855).

    Needs Debian's package lrzip.
    """
    size, by_role = 0, dict[str, list[torch.Tensor]]()
    with_codes = {n: t for n, t in coded.items() if entry_of(n, t).has_codes}
    for name, tensor in with_codes.items():
        by_role.setdefault(entry_of(name, tensor).role, []).append(tensor.data.flatten())
    with tempfile.TemporaryDirectory() as folder:
        for i, parts in enumerate(by_role.values()):
            path = Path(folder, str(i))
            path.write_bytes(bytes(torch.cat(parts).view(torch.uint8).numpy()))
            subprocess.run([*LRZIP, "-o", f"{path}.lrz", str(path)], check=True, capture_output=True)
            size += Path(f"{path}.lrz").stat().st_size
    # Without columns the codes are empty, and scales and small tensors stay.
    rest = {n: dataclasses.replace(t, data=t.data[:, :0]) if n in with_codes else t for n, t in coded.items()}
    quant = QuantConfig(codec="brotli", codec_level=11, layout=["byte_planes"])
    return size + len(compress(payload(rest, ModelConfig(), quant), quant))


def _installed(quant: QuantConfig) -> Iterator[QuantConfig]:
    for codec, level in CODECS.items():
        try:
            require_codec(codec)
        except MissingError:
            continue
        yield dataclasses.replace(quant, codec=codec, codec_level=level)


def _row(what: str, seconds: list[float], note: str = "") -> Row:
    return Row("pack", what, seconds, note=note)
