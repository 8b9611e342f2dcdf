"""Three public claims about quantization and codecs, tested on runs of one variant with different seeds.

`python scripts/quant_claims.py RUN RUN RUN …`, run folders as golf/train.py leaves them. Prints Markdown: means over
the runs and 95 % intervals (t, runs as the sample). docs/studies/quantization_claims.md has the
results.
"""

import argparse
import lzma
import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from scipy.special import stdtrit
from torch import Tensor

from golf.artifact.codec.codecs import compress
from golf.artifact.quant.policy import quantize
from golf.errors import GolfError
from golf.jobs.launch.process import tune_allocator
from golf.run.folder import RunFolder
from golf.settings.composition import compose
from golf.settings.config import Config, QuantConfig
from golf.training.loop.quant_gap import quant_gaps
from golf.training.model.build import shapeless_model
from golf.training.model.weights import read_weights

INT6 = ("quant.attn.format=int6", "quant.mlp.format=int6", "quant.embed.format=int6", "quant.other.format=int6")
FORMATS = {
    "int8, own range": ("quant.scale_floor=eps",),
    "int8, floor": (),
    "int6, own range": ("quant.scale_floor=eps", *INT6),
    "int6, floor": INT6,
}
EMBEDDINGS = {"own range": "quant.scale_floor=eps", "floor": "quant.scale_floor=one_over_qmax"}
CODECS: dict[str, Callable[[bytes], bytes]] = {
    "zlib-9": lambda data: compress(data, "zlib", 9),
    "zstd-12": lambda data: compress(data, "zstd", 12),
    "zstd-22": lambda data: compress(data, "zstd", 22),
    "lzma-6": lambda data: compress(data, "lzma", 6),
    "lzma-9e": lambda data: compress(data, "lzma", 9 | lzma.PRESET_EXTREME),
}


def mean_and_interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and the half-width of its 95 % interval."""
    if len(values) < 2:
        return values[0], math.nan
    return statistics.fmean(values), float(stdtrit(len(values) - 1, 0.975)) * statistics.stdev(values) / math.sqrt(
        len(values)
    )


def quant_of(cfg: Config, *overrides: str) -> QuantConfig:
    return compose(["quant=int8", f"scale={cfg.scale.name}", "launch.nproc=1", *overrides]).quant


def embedding_gaps(cfg: Config, weights: Mapping[str, Tensor]) -> dict[str, tuple[float, float]]:
    """Gap in bpb with an int8 and with an fp16 embedding, for both kinds of scale."""
    quants = {
        f"{embed} {name}": quant_of(cfg, floor, f"quant.embed.format={embed}")
        for name, floor in EMBEDDINGS.items()
        for embed in ("int8", "fp16")
    }
    gaps = {gap.name: gap.gap_bpb for gap in quant_gaps(cfg, weights, quants, tokens=0)}
    return {name: (gaps[f"int8 {name}"], gaps[f"fp16 {name}"]) for name in EMBEDDINGS}


def codes_of(weights: Mapping[str, Tensor], quant: QuantConfig) -> np.ndarray:
    """All integer codes of a checkpoint, in the order of the artifact, int8."""
    coded = [t.data for t in quantize(weights, quant).values() if t.scale is not None]
    return torch.cat([codes.flatten() for codes in coded]).numpy()


def pack_bits(codes: np.ndarray) -> bytes:
    """Four codes -32 … 31 in three bytes, lowest bits first (PR #1559)."""
    padded = np.pad(codes.astype(np.int32), (0, -codes.size % 4), constant_values=-32).reshape(-1, 4) + 32
    words = padded[:, 0] | padded[:, 1] << 6 | padded[:, 2] << 12 | padded[:, 3] << 18
    return np.stack([words & 255, words >> 8 & 255, words >> 16], axis=1).astype(np.uint8).tobytes()


def entropy(codes: np.ndarray) -> float:
    """Order 0, bits a code."""
    shares = np.unique(codes, return_counts=True)[1] / codes.size
    return float(-(shares * np.log2(shares)).sum())


def print_embedding(runs: Sequence[tuple[Config, dict[str, Tensor]]]) -> None:
    print("| scale | gap, int8 embedding | gap, fp16 embedding | fp16 - int8 | runs in which fp16 is smaller |")
    print("|---|---|---|---|---|")
    found = [embedding_gaps(cfg, weights) for cfg, weights in runs]
    for name in EMBEDDINGS:
        pairs = [gaps[name] for gaps in found]
        columns = [[a for a, _ in pairs], [b for _, b in pairs], [b - a for a, b in pairs]]
        shown = (f"{mean:+.5f} ± {half:.5f}" for mean, half in map(mean_and_interval, columns))
        print(f"| {name} | {' | '.join(shown)} | {sum(b < a for a, b in pairs)} of {len(pairs)} |", flush=True)


def print_codecs(runs: Sequence[tuple[Config, dict[str, Tensor]]]) -> None:
    """Bits a code; packed before the codec where six bits are enough."""
    print(f"\n| codes | entropy | {' | '.join(CODECS)} | lzma-6 / zlib-9 |\n|---|---|{'---|' * (len(CODECS) + 1)}")
    for name, overrides in FORMATS.items():
        codes = [codes_of(weights, quant_of(cfg, *overrides)) for cfg, weights in runs]
        print_codec_row(name, codes, [c.tobytes() for c in codes])
        if name.startswith("int6"):
            print_codec_row(f"{name}, packed to 6 bits", codes, [pack_bits(c) for c in codes])


def print_codec_row(name: str, codes: Sequence[np.ndarray], stored: Sequence[bytes]) -> None:
    bits = {
        codec: [8 * len(run(data)) / c.size for c, data in zip(codes, stored, strict=True)]
        for codec, run in CODECS.items()
    }
    cells = [f"{mean:.3f} ± {half:.3f}" for mean, half in map(mean_and_interval, bits.values())]
    ratio, half = mean_and_interval([a / b for a, b in zip(bits["lzma-6"], bits["zlib-9"], strict=True)])
    exact = statistics.fmean(entropy(c) for c in codes)
    print(f"| {name} | {exact:.3f} | {' | '.join(cells)} | {ratio:.4f} ± {half:.4f} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="run folders, one a seed")
    parser.add_argument("--codecs-only", action="store_true", help="leave out what has to be scored")
    arguments = parser.parse_args()
    tune_allocator()
    runs = []
    try:
        for path in arguments.runs:
            cfg, weights = RunFolder(path).read_config(), read_weights(RunFolder(path).weights)
            runs.append((cfg, {name: weights[name] for name in shapeless_model(cfg).state_dict()}))
        if not arguments.codecs_only:
            print_embedding(runs)
        print_codecs(runs)
    except (GolfError, OSError, KeyError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
