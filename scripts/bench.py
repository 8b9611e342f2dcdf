"""How fast golf is on this machine: `python scripts/bench.py [overrides]` prints a table, JSON beside it.

`--parts` chooses: step (every compile mode and dtype), score (flat, sliding). `--against DIR` runs the public
train_gpt.py of that folder in turns with golf, on the same data, shape and compile setting. Compared variants take
turns, so that a machine whose speed drifts slows all alike: read the ratios.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # for the folder bench/, which is no part of the package
os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as golf/train.py; read when torch is imported

import torch

from bench.machine import this_machine
from bench.public import against_rows, against_sliding_rows, public_script
from bench.scoring import scoring_rows
from bench.step import step_rows
from bench.table import Row, as_json, markdown
from golf.errors import GolfError
from golf.exits import exit_status
from golf.settings.composition import compose
from golf.settings.hardware import detect
from golf.system import tune_allocator

PARTS = ("step", "score")


def rows_of(part: str, overrides: list[str], a: argparse.Namespace, device: torch.device) -> Iterator[Row]:
    """Yield all rows of one part for one experiment."""
    if part == "step":
        yield from step_rows(overrides, a.compile.split(","), a.dtypes.split(","), device, a.rounds)
    elif part == "score":
        yield from scoring_rows(compose(overrides), device, a.rounds, a.sequences)


def against(script: Path, overrides: list[str], a: argparse.Namespace) -> Iterator[Row]:
    """Yield rows of golf and the public script under every compile mode and dtype that was asked for."""
    for dtype in a.dtypes.split(","):
        for mode in a.compile.split(","):
            settings = [f"launch.compile={mode}", f"model.compute_dtype={dtype}", f"optim.muon_dtype={dtype}"]
            cfg = compose([*overrides, *settings])
            yield from against_rows(script, cfg, a.rounds)
            yield from against_sliding_rows(script, cfg, a.rounds, a.sequences)


def options() -> argparse.Namespace:
    """Parse the command line."""
    hardware = detect()
    native = "bf16" if hardware.gpus else "fp32,bf16" if hardware.cpu_bf16 else "fp32"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="as for golf/train.py")
    parser.add_argument("--parts", default=",".join(PARTS), help="step,score (default: both), or none")
    parser.add_argument("--experiments", default="naive_baseline,gold6_11l", help="presets, or none: overrides alone")
    parser.add_argument("--compile", default="off,full", help="launch.compile to try (default: off,full)")
    parser.add_argument("--dtypes", default=native, help=f"model.compute_dtype to try (default here: {native})")
    parser.add_argument("--rounds", type=int, default=7, help="of measurements, each thing once (default: 7)")
    parser.add_argument("--sequences", type=int, default=128, help="of T tokens, scored each time (default: 128)")
    parser.add_argument("--against", type=Path, metavar="DIR", help="folder with a public train_gpt.py")
    parser.add_argument("--allocator", choices=("golf", "glibc"), default="golf", help="glibc: leave it as it is")
    parser.add_argument("--json", type=Path, default=Path("bench.json"), help="all figures (default: bench.json)")
    return parser.parse_intermixed_args()


def experiments(a: argparse.Namespace) -> list[list[str]]:
    """Return the overrides of every measured experiment; at laptop scale without a GPU, else at the record's shape."""
    scale = [f"scale={'single_gpu' if detect().gpus else 'laptop'}"]
    if any(o.startswith("scale=") for o in a.overrides):
        scale = []
    named = [[]] if a.experiments == "none" else [[f"experiment={name}"] for name in a.experiments.split(",")]
    return [[*scale, *name, *a.overrides] for name in named]


def measure(a: argparse.Namespace) -> None:
    """Measure what was asked for, print the table, write the JSON."""
    parts = [] if a.parts == "none" else a.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        raise GolfError(f"--parts does not know {', '.join(sorted(unknown))}: choose from {', '.join(PARTS)}.")
    for name in ("rounds", "sequences"):
        if (given := getattr(a, name)) < 1:
            raise GolfError(f"--{name} {given} leaves nothing to measure: write 1 or more.")
    script = public_script(a.against) if a.against else None
    settings = experiments(a)
    launch = compose(settings[0]).launch
    device = torch.device(launch.device)
    torch.set_num_threads(launch.threads or torch.get_num_threads())
    machine, rows = this_machine(device), list[Row]()
    for overrides in settings:
        for part in parts:
            rows += rows_of(part, overrides, a, device)
            print(f"measured {part} of {' '.join(overrides)}", file=sys.stderr)
        if script:
            rows += against(script, overrides, a)
    print(markdown(machine, rows))
    a.json.write_text(as_json(machine, rows, sys.argv), encoding="utf-8")
    print(f"\n{a.json}")


def main() -> int:
    """Measure what the command line asks for; returns 0."""
    a = options()
    if a.allocator == "golf":
        tune_allocator()
    measure(a)
    return 0


if __name__ == "__main__":
    sys.exit(exit_status(main))
