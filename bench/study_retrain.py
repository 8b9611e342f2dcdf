"""Divergence and gap at equal bytes with retraining between the stages of rounding, beside drift with tuning.

`python -m bench.study_retrain RUN…` stores the weights of finished runs on a trellis with steps by sensitivity and by
SDClip under brotli. A way is compared with its form at the same bytes, on the line through log divergence over log
bytes. Calibration, retraining and tuning read training text, scores are of validation text. Intervals have the shape as
the unit: runs of one variant, whatever their seeds, are averaged first.
"""

import argparse
import dataclasses
import math
import statistics
from pathlib import Path
from typing import NamedTuple

import numpy as np

from golf.artifact.quant.fitting import with_steps
from golf.lab.artifacts.quant_gap import QuantGap, quant_gaps, stored_config
from golf.run.folder import RunFolder
from golf.settings.config import Config
from golf.training.model.weights import read_weights

BROTLI = "quant.codec=brotli quant.codec_level=11 quant.layout=[by_role,byte_planes] quant.gptq.damping=[0.03]"
FORMS = {  # name → preset with overrides, and the multiples of its steps that are its line
    "SDClip": ("sdclip_gptq quant.codec=context quant.gptq.damping=[0.03]", (1.0, 1.4)),
    "trellis": ("trellis_sensitive", (1.0, 0.8, 2.3)),
    "brotli": (f"sdclip_gptq {BROTLI}", (1.0, 0.8)),
}
BOTH = "quant.gptq.drift=true quant.tune.steps=120"
STAGES, BLOCKS = "quant.retrain.steps=12", "quant.retrain.steps=12 quant.retrain.by=block"
WAYS = {  # name → form, overrides, multiple of the steps
    "trellis: retrained": ("trellis", STAGES, 1.0),
    "trellis: drift, tuned": ("trellis", BOTH, 1.0),
    "trellis: retrained by block": ("trellis", BLOCKS, 1.0),
    "brotli: retrained": ("brotli", STAGES, 1.0),
    "brotli: drift, tuned": ("brotli", BOTH, 1.0),
    "trellis × 2.3: retrained": ("trellis", STAGES, 2.3),
    "trellis × 2.3: drift, tuned": ("trellis", BOTH, 2.3),
}
COMPARED = [*((way, form) for way, (form, _, _) in WAYS.items()), ("trellis 1.0", "SDClip")]
COMPARED.append(("trellis: retrained", "SDClip"))


class Stored(NamedTuple):
    form: str
    choice: str
    step: float


def all_stored(names: list[str]) -> dict[str, Stored]:
    """Return the lines of all forms, and the ways `names`."""
    lines = {f"{form} {step}": Stored(form, choice, step) for form, (choice, steps) in FORMS.items() for step in steps}
    ways = {n: Stored(form, f"{FORMS[form][0]} {more}", step) for n, (form, more, step) in WAYS.items() if n in names}
    return lines | ways


def config_of(cfg: Config, stored: Stored, tokens: int) -> Config:
    """Return `cfg` stored in this way, calibrated on `tokens` tokens."""
    found = stored_config(f"{stored.choice} quant.calibration.tokens={tokens}", cfg)
    return dataclasses.replace(found, quant=with_steps(found.quant, stored.step))


def on_line(at: float, points: list[tuple[int, float]]) -> float:
    """Return y at `at` bytes on the line through log y over log bytes, extended beyond its ends."""
    x, y = np.log(np.array(sorted(points)).clip(min=1e-7)).T
    i = int(np.clip(np.searchsorted(x, math.log(at)), 1, len(x) - 1))
    return math.exp(y[i - 1] + (math.log(at) - x[i - 1]) * (y[i] - y[i - 1]) / (x[i] - x[i - 1]))


def ratio(found: dict[str, QuantGap], way: str, form: str, measure: str) -> float:
    """Return `measure` of a way over that of a form at the same bytes."""
    line = [found[f"{form} {step}"] for step in FORMS[form][1]]
    points = [(gap.artifact_bytes, float(getattr(gap, measure))) for gap in line]
    return float(getattr(found[way], measure)) / on_line(found[way].artifact_bytes, points)


def interval(ratios: list[float]) -> str:
    """Return the mean and the half-width of its 95 % interval by t over independent ratios."""
    if len(ratios) == 1:
        return f"{ratios[0]:.2f}"
    t = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36}.get(len(ratios), 2.0)
    return f"{statistics.mean(ratios):.2f} ± {t * statistics.stdev(ratios) / math.sqrt(len(ratios)):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs")
    parser.add_argument("--tokens", type=int, default=16_384, help="tokens to calibrate on")
    parser.add_argument("--scored", type=int, default=65_536, help="tokens to score")
    parser.add_argument("--ways", nargs="*", choices=list(WAYS), default=list(WAYS), help="ways to compare")
    arguments = parser.parse_args()
    of_run: dict[Path, dict[str, QuantGap]] = {}
    print("| run | way | bytes | KL, bpb | gap, bpb | seconds |\n|---|---|---|---|---|---|")
    for run in arguments.runs:
        folder, of_run[run] = RunFolder(run), {}
        cfg = folder.read_config()
        stored = {n: config_of(cfg, how, arguments.tokens) for n, how in all_stored(arguments.ways).items()}
        for gap in quant_gaps(cfg, read_weights(folder.weights), stored, tokens=arguments.scored):
            of_run[run][gap.name] = gap
            gaps = f"{gap.kl_bpb:.6f} | {gap.gap_bpb:.5f} ± {gap.gap_standard_error:.5f} | {gap.seconds:.0f}"
            print(f"| {run.parent.name} | {gap.name} | {gap.artifact_bytes:,} | {gaps} |", flush=True)
    print("\n| at equal bytes, by shape | KL | gap |\n|---|---|---|")
    for way, form in COMPARED:
        measures = []
        for measure in ("kl_bpb", "gap_bpb"):
            shapes: dict[Path, list[float]] = {}
            for run, found in of_run.items():
                if way in found:
                    shapes.setdefault(run.parent, []).append(ratio(found, way, form, measure))
            means = [statistics.mean(of) for of in shapes.values()]
            measures.append(f"{interval(means)} ({', '.join(f'{m:.2f}' for m in means)})" if means else "not measured")
        print(f"| {way} over {form} | {measures[0]} | {measures[1]} |")


if __name__ == "__main__":
    main()
