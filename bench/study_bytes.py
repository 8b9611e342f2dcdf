"""Gap against bytes of SDClip GPTQ, column steps and trellises, all under golf's own entropy coder.

`python -m bench.study_bytes RUN… --plot docs/studies/bytes.svg` stores the weights of finished runs at several steps,
prints the points, and compares each way with SDClip GPTQ on the same checkpoint: gap at equal bytes and bytes at equal
gap, by interpolation of log gap over log bytes. The exponent of the columns is the one that is best on all other
checkpoints. Calibration reads training text, scores are of validation text.
"""

import argparse
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from golf.run.folder import RunFolder
from golf.training.loop.quant_gap import gaps_of_run

CLASSES = ("embed", "attn", "mlp")
K = {"embed": 20.0, "attn": 12.85, "mlp": 12.85}  # clips of record 2026-04-05_SP8192
REFERENCE = "SDClip GPTQ"
EXPONENTS = (0.5, 0.7, 1.0)
STEPS = {REFERENCE: (0.6, 1.0, 1.5, 2.2), "other": (1.0, 1.6, 2.3)}  # multiples of the clips


class Point(NamedTuple):
    """One stored form of one checkpoint."""

    way: str
    step: float
    artifact_bytes: int
    gap_bpb: float


def ways() -> dict[str, str]:
    """Return the overrides of a way to store weights by its name."""
    trellis, one_step = (
        " ".join(f"quant.{c}.{what}" for c in CLASSES) for what in ("rounding=trellis", "clip=matrix_std")
    )

    def columns(exponent: float) -> str:
        return " ".join(f"quant.{c}.columns={exponent}" for c in CLASSES)

    found = {REFERENCE: "", "columns 0.7": columns(0.7), "trellis": trellis, "one step a matrix": one_step}
    return found | {f"together {e}": f"{trellis} {one_step} {columns(e)}" for e in EXPONENTS}


def points_of(run: Path, tokens: int, names: Sequence[str]) -> Iterator[Point]:
    """Yield the points of one checkpoint as they are measured."""
    choices = {}
    for way in names:
        for step in STEPS.get(way, STEPS["other"] if way.startswith("together 0.7") else (1.0,)):
            clips = " ".join(f"quant.{c}.clip_k={K[c] * step}" for c in CLASSES)
            common = f"quant.codec=context quant.calibration.tokens={tokens}"
            choices[f"sdclip_gptq {clips} {common} {ways()[way]}".strip()] = (way, step)
    for gap in gaps_of_run(RunFolder(run), list(choices), tokens=tokens):
        yield Point(*choices[gap.name], gap.artifact_bytes, gap.gap_bpb)


def interpolated(at: float, x: Sequence[float], y: Sequence[float]) -> float:
    """Return y at `at` on the line through log y over log x, extended beyond its ends; y positive."""
    order = np.argsort(x)
    a, b = np.log(np.array(x)[order]), np.log(np.maximum(np.array(y)[order], 1e-6))
    i = int(np.clip(np.searchsorted(a, math.log(at)), 1, len(a) - 1))
    return math.exp(b[i - 1] + (math.log(at) - a[i - 1]) * (b[i] - b[i - 1]) / (a[i] - a[i - 1]))


def gap_at_equal_bytes(points: Sequence[Point], way: str, step: float = 1.0) -> float:
    """Return the gap of `way` over that of the reference at the same bytes."""
    (own,) = (p for p in points if p.way == way and p.step == step)
    reference = [p for p in points if p.way == REFERENCE]
    sizes, gaps = [p.artifact_bytes for p in reference], [p.gap_bpb for p in reference]
    return own.gap_bpb / interpolated(own.artifact_bytes, sizes, gaps)


def bytes_at_equal_gap(points: Sequence[Point], way: str) -> float:
    """Return the bytes of `way` over those of the reference at the reference's own gap at step 1."""
    (reference,) = (p for p in points if p.way == REFERENCE and p.step == 1.0)
    own = [p for p in points if p.way == way]
    size = interpolated(reference.gap_bpb, [p.gap_bpb for p in own], [p.artifact_bytes for p in own])
    return size / reference.artifact_bytes


def interval(ratios: Sequence[float], digits: int = 3) -> str:
    """Return the mean and the half-width of its 95 % interval, by t over checkpoints, with `digits` decimals."""
    t = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36}.get(len(ratios), 2.0)
    half = t * statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan
    return f"{statistics.mean(ratios):.{digits}f} ± {half:.{digits}f}"


def chosen_elsewhere(of_run: dict[Path, list[Point]]) -> list[float]:
    """Return for each checkpoint the gap ratio of the exponent that is best on the others."""
    ratios = {e: [gap_at_equal_bytes(p, f"together {e}") for p in of_run.values()] for e in EXPONENTS}
    found = []
    for i in range(len(of_run)):
        best = min(EXPONENTS, key=lambda e: statistics.mean(r for j, r in enumerate(ratios[e]) if j != i))
        found.append(ratios[best][i])
    return found


def summary(of_run: dict[Path, list[Point]]) -> Iterator[str]:
    """Yield the lines of the table of ratios."""
    yield f"\n{len(of_run)} checkpoints, means ± 95 %\n"
    yield "| way | gap at equal bytes | bytes at equal gap |\n|---|---|---|"
    for way in ways():
        if way != REFERENCE:
            ratios = interval([gap_at_equal_bytes(p, way) for p in of_run.values()])
            several = way == "together 0.7"
            sizes = interval([bytes_at_equal_gap(p, way) for p in of_run.values()]) if several else ""
            yield f"| {way} | {ratios} | {sizes} |"
    if len(of_run) > 2:
        yield f"| together, exponent of the others | {interval(chosen_elsewhere(of_run))} | |"


def draw(of_run: dict[Path, list[Point]], path: Path) -> None:
    """Draw gap over bytes, both relative to SDClip GPTQ at its published steps."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2))
    for way, colour in ((REFERENCE, "#888888"), ("together 0.7", "#1f77b4")):
        for points in of_run.values():
            (unit,) = (p for p in points if p.way == REFERENCE and p.step == 1.0)
            own = sorted(p for p in points if p.way == way)
            x, y = [p.artifact_bytes / unit.artifact_bytes for p in own], [p.gap_bpb / unit.gap_bpb for p in own]
            axes.plot(x, y, "o-", color=colour, label=way if points is next(iter(of_run.values())) else None)
    axes.set(xlabel="artifact bytes, SDClip GPTQ = 1", ylabel="gap, SDClip GPTQ = 1", yscale="log")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs")
    parser.add_argument("--tokens", type=int, default=65_536, help="tokens to calibrate on, and to score")
    parser.add_argument("--plot", type=Path, help="svg file to draw")
    arguments = parser.parse_args()
    of_run: dict[Path, list[Point]] = {}
    print("| run | way | step | bytes | gap, bpb |\n|---|---|---|---|---|")
    for run in arguments.runs:
        of_run[run] = []
        for point in points_of(run, arguments.tokens, list(ways())):
            of_run[run].append(point)
            name = f"{run.parent.name}/{run.name}"
            print(
                f"| {name} | {point.way} | {point.step} | {point.artifact_bytes:,} | {point.gap_bpb:.5f} |", flush=True
            )
    print("\n".join(summary(of_run)))
    if arguments.plot:
        draw(of_run, arguments.plot)


if __name__ == "__main__":
    main()
