"""Gap at equal bytes with steps by sensitivity, drift correction and tuning after rounding, alone and together.

`python -m bench.study_drift RUN…` stores the weights of finished runs by `quant=trellis` and in the records' forms, and
compares each way with the same form without either: gap over that of the form at the same bytes, by interpolation of
log gap over log bytes, and the same for the divergence from the trained model. Calibration and tuning read training
text, each another part; scores are of validation text. Intervals have the shape as the unit: runs of one variant,
whatever their seeds, are averaged first.
"""

import argparse
import dataclasses
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from bench.checkpoint import Checkpoint, Point
from golf.artifact.container import unpack
from golf.tables import grouped
from golf.training.loop.calibration import calibrate
from golf.training.loop.export import pack_model, round_model
from golf.training.loop.tuning import tune

BROTLI = "quant.codec=brotli quant.codec_level=11 quant.layout=[by_role,byte_planes]"
FORMS = {  # name → preset with overrides
    "trellis": "trellis",
    "SDClip GPTQ, brotli": f"sdclip_gptq {BROTLI}",
    "SDClip GPTQ + LQER, brotli": f"sdclip_lqer_asym {BROTLI}",
}
STEPS = (0.8, 1.0, 1.3)  # multiples of a form's steps, for its curve
DRIFT = "quant.gptq.drift=true"
STEPS_BY_DIVERGENCE = "quant.step_sensitivity=0.75"


def ways(tune_steps: int, tune_tokens: int) -> dict[str, str]:
    """Return the overrides of each way to store a form, by its name."""
    kl = f"quant.tune.steps={tune_steps} quant.tune.batch_tokens={tune_tokens}"
    loss = f"{kl} quant.tune.loss=loss"
    return {
        "drift": DRIFT,
        "tuned, KL": kl,
        "tuned, loss": loss,
        "both, KL": f"{DRIFT} {kl}",
        "steps": STEPS_BY_DIVERGENCE,
        "steps, drift": f"{STEPS_BY_DIVERGENCE} {DRIFT}",
        "all, KL": f"{STEPS_BY_DIVERGENCE} {DRIFT} {kl}",
    }


def stored(checkpoint: Checkpoint, choice: str, step: float) -> bytes:
    """Return the artifact of a checkpoint as `choice` says, with all steps multiplied by `step`."""
    cfg = dataclasses.replace(checkpoint.cfg, quant=checkpoint.quant(choice, step))
    coded = round_model(cfg, checkpoint.weights, 0, calibrate(checkpoint.weights, cfg, checkpoint.dataset))
    if cfg.quant.tune.steps > 0:
        coded = tune(coded, checkpoint.weights, cfg, checkpoint.dataset)
    return pack_model(cfg, checkpoint.weights, coded).artifact


def points_of(checkpoint: Checkpoint, overrides: dict[str, str], forms: list[str]) -> Iterator[Point]:
    """Yield the points of one checkpoint as they are measured; `overrides` are those of `ways`."""
    for form in forms:
        choices = [(form, FORMS[form], step) for step in STEPS]
        choices += [(f"{form}: {way}", f"{FORMS[form]} {more}", 1.0) for way, more in overrides.items()]
        for name, choice, step in choices:
            artifact = stored(checkpoint, choice, step)
            restored = unpack(artifact).state_dict()
            yield Point(name, step, len(artifact), checkpoint.gap_bpb(restored), checkpoint.divergence(restored))


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


def by_shape(ratios: dict[Path, float]) -> list[float]:
    """Return the mean over the runs of each variant folder: two seeds of one shape are not independent."""
    shapes = grouped((run.parent, ratio) for run, ratio in ratios.items())
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


def gap_ratio(points: list[Point], form: str, way: str) -> float:
    """Return the gap of a way over that of its form at the same bytes."""
    own = at_own_step(points, f"{form}: {way}")
    return own.gap_bpb / interpolated(own.artifact_bytes, *curve(points, form))


def divergence_ratio(points: list[Point], form: str, way: str) -> float:
    """Return what `gap_ratio` does for the divergence in place of the gap."""
    return gap_ratio([point._replace(gap_bpb=point.divergence) for point in points], form, way)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs")
    parser.add_argument("--tokens", type=int, default=65_536, help="tokens to calibrate on, and to score")
    parser.add_argument("--scored-tokens", type=int, help="tokens to score, if they are not as many")
    parser.add_argument("--tune-steps", type=int, default=120, help="steps of a tuning")
    parser.add_argument("--tune-tokens", type=int, default=2048, help="tokens of a step of a tuning")
    parser.add_argument("--ways", nargs="+", choices=list(ways(1, 1)), default=list(ways(1, 1)), help="ways to compare")
    parser.add_argument("--forms", nargs="+", choices=list(FORMS), default=list(FORMS), help="forms to store")
    arguments = parser.parse_args()
    known = ways(arguments.tune_steps, arguments.tune_tokens)
    overrides = {way: known[way] for way in arguments.ways}
    of_run: dict[Path, list[Point]] = {}
    print("| run | way | step | bytes | gap, bpb | divergence, nats |\n|---|---|---|---|---|---|")
    for run in arguments.runs:
        of_run[run] = []
        checkpoint = Checkpoint(run, arguments.tokens, arguments.scored_tokens)
        for point in points_of(checkpoint, overrides, arguments.forms):
            of_run[run].append(point)
            where = f"{run.parent.name}/{run.name} | {point.way} | {point.step}"
            print(f"| {where} | {point.artifact_bytes:,} | {point.gap_bpb:.5f} | {point.divergence:.5f} |", flush=True)
    shapes = len({run.parent for run in of_run})
    for measure, ratio in {"gap": gap_ratio, "divergence": divergence_ratio}.items():
        print(f"\n{len(of_run)} checkpoints of {shapes} shapes, {measure} at equal bytes, means ± 95 % over shapes\n")
        print("| form | " + " | ".join(overrides) + " |\n" + "|---" * (1 + len(overrides)) + "|")
        for form in arguments.forms:
            found = [interval(by_shape({run: ratio(p, form, way) for run, p in of_run.items()})) for way in overrides]
            print(f"| {form} | " + " | ".join(found) + " |")


if __name__ == "__main__":
    main()
