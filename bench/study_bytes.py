"""Gap against bytes of the field's ways to store a model and of Golf's, on the same checkpoints.

`python -m bench.study_bytes RUN… --plot docs/studies/bytes.svg` stores the weights of finished runs at several steps,
prints the points, and compares each way with SDClip GPTQ on the same checkpoint: gap at equal bytes and bytes at equal
gap, by interpolation of log gap over log bytes. The exponent of the columns is the one that is best on all other
checkpoints. Calibration reads training text, scores are of validation text. lrzip needs Debian's package lrzip.
"""

import argparse
import dataclasses
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.checkpoint import Checkpoint, Point
from bench.packing import lrzip_bytes
from golf.artifact.container import pack, unpack
from golf.artifact.quant.formats import CodedTensor
from golf.artifact.quant.policy import quantize
from golf.settings.config import QuantConfig

REFERENCE = "SDClip GPTQ"
EXPONENTS = (0.5, 0.7, 1.0)
OURS = "together 0.7"  # quant=trellis
LQER = "quant.lqer.rank=4 quant.lqer.top=3 quant.lqer.format=int4 quant.lqer.factors=asymmetric"
EMBEDDING = (0.7, 0.85)  # factors on the embedding's step


@dataclass(frozen=True)
class Form:
    """One rounding of the weights, at several steps."""

    choice: str  # preset of `quant` with overrides
    codecs: Mapping[str, str]  # name of the way → its codec
    steps: tuple[float, ...] = (1.0,)  # multiples of the preset's steps


def _of_matrices(setting: str) -> str:
    return " ".join(f"quant.{c}.{setting}" for c in ("embed", "attn", "mlp"))


def forms() -> list[Form]:
    """Return all ways, the reference's rounding first."""
    columns = [f"sdclip_gptq {_of_matrices(f'columns={e}')}" for e in EXPONENTS]
    one_step, trellis = _of_matrices("clip=matrix_std"), _of_matrices("rounding=trellis")
    ours = f"{columns[1]} {one_step} {trellis}"
    sdclip = {REFERENCE: "context", "SDClip GPTQ, brotli": "brotli", "SDClip GPTQ, lrzip": "lrzip"}
    lqer = {"SDClip GPTQ + LQER, lrzip": "lrzip", "SDClip GPTQ + LQER, entropy coder": "context"}
    return [
        Form("sdclip_gptq", sdclip, (0.6, 1.0, 1.5, 2.2)),
        Form("int8", {"int8, zlib": "zlib"}),
        Form("int6_mixed", {"int6, zstd": "zstd"}),
        Form("sdclip_lqer_asym", lqer, (0.6, 1.0, 1.5)),
        Form(columns[1], {"columns 0.7": "context"}, (1.0, 1.6)),
        Form(f"sdclip_gptq {trellis}", {"trellis": "context"}, (1.0, 1.6)),
        Form(f"sdclip_gptq {one_step}", {"one step a matrix": "context"}),
        Form(ours, {OURS: "context"}, (1.0, 1.6, 2.3)),
        Form(f"{columns[0]} {one_step} {trellis}", {"together 0.5": "context"}),
        Form(f"{columns[2]} {one_step} {trellis}", {"together 1.0": "context"}),
        Form(f"{ours} {LQER}", {"together 0.7 + LQER": "context"}, (1.0, 1.6)),
        *(Form(f"{ours} quant.embed.clip_k={20 * f}", {f"{OURS}, embedding × {f}": "context"}) for f in EMBEDDING),
    ]


def points_of(run: Path, tokens: int) -> Iterator[Point]:
    """Yield the points of one checkpoint as they are measured."""
    checkpoint = Checkpoint(run, tokens)
    for form in forms():
        for step in form.steps:
            quant = checkpoint.quant(form.choice, step)
            coded = quantize(checkpoint.weights, quant, checkpoint.hessians, checkpoint.cfg.tech)
            sizes = {way: _artifact_bytes(checkpoint, coded, quant, codec) for way, codec in form.codecs.items()}
            gap = checkpoint.gap_bpb(unpack(_packed(checkpoint, coded, quant, "context")).state_dict())
            yield from (Point(way, step, size, gap) for way, size in sizes.items())


def _artifact_bytes(checkpoint: Checkpoint, coded: Mapping[str, CodedTensor], quant: QuantConfig, codec: str) -> int:
    return lrzip_bytes(coded) if codec == "lrzip" else len(_packed(checkpoint, coded, quant, codec))


def _packed(checkpoint: Checkpoint, coded: Mapping[str, CodedTensor], quant: QuantConfig, codec: str) -> bytes:
    # Byte codecs are at their best with these layouts, but for int8 and int6 as they were published.
    layout = ["by_role", "byte_planes"] if codec == "brotli" else []
    level = 11 if codec == "brotli" else quant.codec_level
    quant = dataclasses.replace(quant, codec=codec, codec_level=level, layout=layout)
    return pack(coded, checkpoint.cfg.model, quant, checkpoint.cfg.tech)


def interpolated(at: float, x: Sequence[float], y: Sequence[float]) -> float:
    """Return y at `at` on the line through log y over log x, extended beyond its ends; y positive."""
    order = np.argsort(x)
    a, b = np.log(np.array(x)[order]), np.log(np.maximum(np.array(y)[order], 1e-6))
    i = int(np.clip(np.searchsorted(a, math.log(at)), 1, len(a) - 1))
    return math.exp(b[i - 1] + (math.log(at) - a[i - 1]) * (b[i] - b[i - 1]) / (a[i] - a[i - 1]))


def curve(points: Sequence[Point], way: str) -> tuple[list[int], list[float]]:
    """Return the bytes and the gaps of all points of `way`."""
    own = sorted((p.artifact_bytes, p.gap_bpb) for p in points if p.way == way)
    return [size for size, _ in own], [gap for _, gap in own]


def at_own_step(points: Sequence[Point], way: str) -> Point:
    """Return the point of `way` at its own steps."""
    (own,) = (p for p in points if p.way == way and p.step == 1.0)
    return own


def gap_at_equal_bytes(points: Sequence[Point], way: str) -> float:
    """Return the gap of `way` at its own steps over that of the reference at the same bytes."""
    own = at_own_step(points, way)
    return own.gap_bpb / interpolated(own.artifact_bytes, *curve(points, REFERENCE))


def bytes_at_equal_gap(points: Sequence[Point], way: str) -> float:
    """Return the bytes of `way` over those of the reference at equal gap.

    The gap is that of the reference's own steps if `way` has several steps, else that of `way`.
    """
    own, reference = at_own_step(points, way), at_own_step(points, REFERENCE)
    sizes, gaps = curve(points, way)
    if len(sizes) > 1:
        return interpolated(reference.gap_bpb, gaps, sizes) / reference.artifact_bytes
    sizes, gaps = curve(points, REFERENCE)
    return own.artifact_bytes / interpolated(own.gap_bpb, gaps, sizes)


def by_shape(ratios: dict[Path, float]) -> list[float]:
    """Return the mean over the runs of each variant folder: two seeds of one shape are not independent."""
    shapes: dict[Path, list[float]] = {}
    for run, ratio in ratios.items():
        shapes.setdefault(run.parent, []).append(ratio)
    return [statistics.mean(found) for found in shapes.values()]


def interval(ratios: Sequence[float], digits: int = 3) -> str:
    """Return the mean and the half-width of its 95 % interval, by t over independent ratios, with `digits` decimals.

    One ratio has no interval.
    """
    if len(ratios) == 1:
        return f"{ratios[0]:.{digits}f}"
    t = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36}.get(len(ratios), 2.0)
    half = t * statistics.stdev(ratios) / math.sqrt(len(ratios))
    return f"{statistics.mean(ratios):.{digits}f} ± {half:.{digits}f}"


def chosen_elsewhere(of_run: dict[Path, list[Point]]) -> list[float]:
    """Return for each shape the gap ratio of the exponent that is best on the others."""
    ratios = {
        e: by_shape({run: gap_at_equal_bytes(p, f"together {e}") for run, p in of_run.items()}) for e in EXPONENTS
    }
    found = []
    for i in range(len(ratios[EXPONENTS[0]])):
        best = min(EXPONENTS, key=lambda e: statistics.mean(r for j, r in enumerate(ratios[e]) if j != i))
        found.append(ratios[best][i])
    return found


def summary(of_run: dict[Path, list[Point]]) -> Iterator[str]:
    """Yield the lines of the table of ratios."""
    shapes = len({run.parent for run in of_run})
    yield f"\n{len(of_run)} checkpoints of {shapes} shapes, means ± 95 % over shapes\n"
    yield "| way | gap at equal bytes | bytes at equal gap |\n|---|---|---|"
    for form in forms():
        for way, codec in form.codecs.items():
            gaps = interval(by_shape({run: gap_at_equal_bytes(p, way) for run, p in of_run.items()}))
            # One point of ours is compared by its gap alone; a published format has no other point.
            sizes = len(form.steps) > 1 or codec != "context"
            shown = interval(by_shape({run: bytes_at_equal_gap(p, way) for run, p in of_run.items()})) if sizes else ""
            if way != REFERENCE:
                yield f"| {way} | {gaps} | {shown} |"
    if shapes > 2:
        yield f"| together, exponent of the others | {interval(chosen_elsewhere(of_run))} | |"


STYLES = {
    "int8, zlib": ("#bbbbbb", "s"),
    "int6, zstd": ("#999999", "D"),
    "SDClip GPTQ, brotli": ("#d9a441", "o"),
    "SDClip GPTQ, lrzip": ("#c26a3d", "o"),
    "SDClip GPTQ + LQER, lrzip": ("#8c564b", "^"),
    REFERENCE: ("#555555", "o"),
    "columns 0.7": ("#7fb77e", "v"),
    "trellis": ("#5aa5c8", "v"),
    OURS: ("#1f4e9c", "o"),
}
LABELS = {REFERENCE: "SDClip GPTQ, Golf's coder", "columns 0.7": "+ column steps", "trellis": "+ trellis of 8 states"}


def draw(of_run: dict[Path, list[Point]], path: Path) -> None:
    """Draw gap over bytes, geometric means over the checkpoints, relative to SDClip GPTQ at its published steps."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, NullFormatter

    figure, axes = pyplot.subplots(figsize=(7.5, 4.8))
    units = {run: at_own_step(points, REFERENCE) for run, points in of_run.items()}
    for way, (colour, marker) in STYLES.items():
        steps = sorted({p.step for points in of_run.values() for p in points if p.way == way})
        means = []
        for step in steps:
            found = [(p, units[run]) for run, ps in of_run.items() for p in ps if p.way == way and p.step == step]
            x = statistics.geometric_mean(p.artifact_bytes / unit.artifact_bytes for p, unit in found)
            # A gap below nothing is noise of the score, which a logarithm cannot show.
            means.append((x, statistics.geometric_mean(max(p.gap_bpb / unit.gap_bpb, 0.01) for p, unit in found)))
        label = LABELS.get(way, "both, one step a matrix (quant=trellis)" if way == OURS else way)
        width = 2.2 if way in (REFERENCE, OURS) else 1.2
        axes.plot(*zip(*sorted(means), strict=True), f"{marker}-", color=colour, label=label, linewidth=width)
    axes.set(xlabel="artifact bytes, SDClip GPTQ with Golf's coder = 1", ylabel="gap in bpb, same = 1", yscale="log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
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
        for point in points_of(run, arguments.tokens):
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
