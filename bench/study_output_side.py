"""Steps of rows by what their output is worth to the loss, against steps that are equal within a matrix.

`python -m bench.study_output_side RUN…` stores the attention and MLP matrices of finished runs by `quant=trellis`, with
the step of row i in proportion to F_i to the power -q. F_i is the diagonal of the empirical Fisher information of the
row's output: the mean over training tokens of the squared gradient of the loss with respect to it. To minimise the sum
of F_i times the squared step at a given sum of logarithms, q would be 0.5; 0 is the preset. Gaps are of validation text
at equal bytes, by interpolation over three steps of q = 0; a row's factor counts one byte.
"""

import argparse
import dataclasses
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from bench.checkpoint import Checkpoint, Point
from bench.study_bytes import interpolated, interval
from golf.artifact.container import unpack
from golf.artifact.quant.policy import tensor_class
from golf.training.loop.export import pack_model, round_model
from golf.training.model.gpt import GPT

EXPONENTS = (0.125, 0.25, 0.5)
STEPS = (1.0, 1.6, 2.3)  # multiples of the preset's clips at q = 0
FISHER_TOKENS = 16_384
BATCH_SEQS = 8


def output_fisher(model: GPT, sequences: Tensor) -> dict[str, Tensor]:
    """Return F `[rows]` of every linear layer's weight by its name; `sequences` are token ids `[n, T + 1]`."""
    sums: dict[str, Tensor] = {}

    def watch(name: str, module: nn.Module) -> torch.utils.hooks.RemovableHandle:
        def note(_: nn.Module, __: object, output: Tensor) -> None:
            def add(gradient: Tensor) -> None:
                sums[name] = sums.get(name, 0.0) + gradient.double().flatten(0, -2).square().sum(0)

            output.register_hook(add)

        return module.register_forward_hook(note)

    handles = [watch(f"{n}.weight", m) for n, m in model.named_modules() if isinstance(m, nn.Linear)]
    for batch in sequences.split(BATCH_SEQS):
        model(batch[:, :-1], batch[:, 1:]).backward()
    for handle in handles:
        handle.remove()
    model.zero_grad()
    return sums


def row_factors(fisher: Mapping[str, Tensor], exponent: float) -> dict[str, Tensor]:
    """Return F^q `[rows, 1]` of the attention and MLP matrices, with a geometric mean of 1."""
    # The bound keeps a row without gradient from a logarithm of zero.
    logs = {name: exponent * f.clamp_min(1e-12 * float(f.max())).log() for name, f in fisher.items()}
    return {
        name: (log - log.mean()).exp().float()[:, None]
        for name, log in logs.items()
        if tensor_class(name) in ("attn", "mlp")
    }


def points_of(run: Path, tokens: int) -> Iterator[Point]:
    """Yield the points of one checkpoint as they are measured: q = 0 at three steps, the others at one."""
    checkpoint = Checkpoint(run, tokens)
    model, length = checkpoint.scorer.model, checkpoint.cfg.data.train_seq_len + 1
    model.load_state_dict(checkpoint.weights)
    text = np.asarray(checkpoint.dataset.train[0][: FISHER_TOKENS // length * length], dtype=np.int64)
    fisher = output_fisher(model, torch.from_numpy(text).view(-1, length))
    for exponent, step in [*((0.0, step) for step in STEPS), *((q, 1.0) for q in EXPONENTS)]:
        factors = row_factors(fisher, exponent)
        packed = stored(checkpoint, step, factors)
        found = unpack(packed).state_dict()
        # Rows were multiplied before rounding, which makes their steps finer by the same factor.
        found = {name: tensor / factors[name] if name in factors else tensor for name, tensor in found.items()}
        # The container has no place for factors of rows, so their byte each is added.
        size = len(packed) + (sum(len(f) for f in factors.values()) if exponent else 0)
        yield Point(f"q = {exponent}", step, size, checkpoint.gap_bpb(found))


def stored(checkpoint: Checkpoint, step: float, factors: Mapping[str, Tensor]) -> bytes:
    """Return the artifact of the weights with rows multiplied by `factors` and the preset's steps by `step`."""
    scaled = {n: tensor * factors[n] if n in factors else tensor for n, tensor in checkpoint.weights.items()}
    cfg = dataclasses.replace(checkpoint.cfg, quant=checkpoint.quant("trellis", step))
    return pack_model(cfg, scaled, round_model(cfg, scaled, 0, checkpoint.hessians)).artifact


def gap_ratios(points: Sequence[Point]) -> dict[str, float]:
    """Return the gap of each exponent over that of q = 0 at the same bytes."""
    equal = [p for p in points if p.way == "q = 0.0"]
    sizes, gaps = [p.artifact_bytes for p in equal], [p.gap_bpb for p in equal]
    return {p.way: p.gap_bpb / interpolated(p.artifact_bytes, sizes, gaps) for p in points if p.way != "q = 0.0"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs")
    parser.add_argument("--tokens", type=int, default=65_536, help="tokens to calibrate on, and to score")
    arguments = parser.parse_args()
    ratios: list[dict[str, float]] = []
    print("| run | way | step | bytes | gap, bpb |\n|---|---|---|---|---|")
    for run in arguments.runs:
        points = []
        for point in points_of(run, arguments.tokens):
            points.append(point)
            print(
                f"| {run.parent.name}/{run.name} | {point.way} | {point.step} | {point.artifact_bytes:,} | "
                f"{point.gap_bpb:.5f} |",
                flush=True,
            )
        ratios.append(gap_ratios(points))
    print(f"\n{len(ratios)} checkpoints, gap at equal bytes over that of q = 0, means ± 95 %\n")
    for way in ratios[0]:
        values = [r[way] for r in ratios]
        print(f"| {way} | {interval(values)} | {' '.join(f'{v:.3f}' for v in values)} |")
    if len(ratios) > 1:
        print(f"| exponent of the others | {interval(chosen_elsewhere(ratios))} | |")


def chosen_elsewhere(ratios: Sequence[dict[str, float]]) -> list[float]:
    """Return for each checkpoint the ratio of the exponent that is best on the others."""
    found = []
    for i, own in enumerate(ratios):
        others = [r for j, r in enumerate(ratios) if j != i]
        found.append(own[min(own, key=lambda way: statistics.mean(r[way] for r in others))])
    return found


if __name__ == "__main__":
    main()
