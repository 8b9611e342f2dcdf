"""Predicted against actual artifact bytes: `python scripts/bench_plan.py --runs FOLDER [--evidence FOLDER]`.

Every finished run under `--runs` is planned again from its own configuration, with those under `--evidence` (none of
them the same run) as history, and the prediction is set beside the bytes of its artifact. With `--quant "PRESET
quant.key=value"` each checkpoint is stored under that instead, without calibration, and predicted so.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from golf.artifact.container import pack
from golf.config import uses_gptq
from golf.errors import GolfError
from golf.loop.fitting import quantized
from golf.model.checkpoint import read_weights
from golf.plan.history import FinishedRun, finished_runs
from golf.plan.plan import Plan, make_plan
from golf.quant_table import quant_of

HEAD = "| run | formats | scale | codec | actual | predicted | error | interval |\n|---|---|---|---|---|---|---|---|"


def compared(run: FinishedRun, plan: Plan) -> tuple[str, float, bool]:
    """Table row, relative error of the expected bytes, whether the interval holds the actual ones."""
    actual, quant = run.result.artifact_bytes or 0, run.config.quant
    low, expected, high = plan.artifact.bytes
    error, formats = expected / actual - 1, "/".join(how.format for how in (quant.embed, quant.attn, quant.mlp))
    interval = f"{low / expected - 1:+.1%} … {high / expected - 1:+.1%}"
    scale = "floor" if quant.scale_floor == "one_over_qmax" else "own range"
    cells = (run.result.name, formats, scale, quant.codec, f"{actual:,}", f"{expected:,.0f}", f"{error:+.2%}", interval)
    return f"| {' | '.join(cells)} |", error, low <= actual <= high


def stored_as(run: FinishedRun, choice: str) -> FinishedRun:
    """The run as if its weights had been stored under `choice`, a preset of conf/quant with overrides."""
    cfg = dataclasses.replace(run.config, quant=quant_of(choice, run.config))
    if uses_gptq(cfg.quant):
        raise GolfError(f"--quant '{choice}' needs calibration: set rounding=nearest for every class.")
    packed = pack(
        quantized(cfg, read_weights(run.folder.weights), run.result.code_bytes or 0), cfg.model, cfg.quant, cfg.tech
    )
    return dataclasses.replace(run, config=cfg, result=dataclasses.replace(run.result, artifact_bytes=len(packed)))


def fixture(evidence: Sequence[FinishedRun], runs: Sequence[FinishedRun]) -> list[dict[str, Any]]:
    """What a prediction needs of both kinds of runs, without their weights: tests/plan/finished_runs.json."""
    return [
        {
            "name": run.result.name,
            "overrides": [a for a in run.environment["command"][1:] if not a.startswith("launch.")],
            "steps": run.result.steps,
            "artifact_bytes": run.result.artifact_bytes,
            "model_params": run.result.model_params,
            "sizes": {role: round(size, 4) for role, size in (run.sizes() or {}).items()},
            "ratios": {
                other.result.name: round(run.ratio(other.config.quant, store_again=True) or 1, 5)
                for other in runs
                if run in evidence
            },
        }
        for run in [*evidence, *runs]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evidence", type=Path, help="runs that the predictions may learn from")
    parser.add_argument("--runs", type=Path, required=True, help="runs to predict")
    parser.add_argument("--quant", help="a preset of conf/quant with overrides, in quotes, instead of the runs' own")
    parser.add_argument("--fixture", type=Path, help="write what the test of predictions reads")
    arguments = parser.parse_args()
    evidence = finished_runs(arguments.evidence) if arguments.evidence else []
    runs = finished_runs(arguments.runs)
    if not runs:
        print(f"error: there are no finished runs under {arguments.runs}.", file=sys.stderr)
        return 2
    if arguments.quant:
        try:
            evidence, runs = ([stored_as(run, arguments.quant) for run in part] for part in (evidence, runs))
        except GolfError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
    print(HEAD)
    found = []
    for run in sorted(runs, key=lambda r: (r.config.quant.scale_floor, r.result.name)):
        row, *rest = compared(run, make_plan(run.config, evidence))
        found.append(rest)
        print(row, flush=True)
    if arguments.fixture:
        arguments.fixture.write_text(json.dumps(fixture(evidence, runs), indent=1) + "\n")
    errors = sorted(abs(error) for error, _ in found)
    held = sum(holds for _, holds in found)
    print(f"\n{len(found)} runs, {len(evidence)} as evidence: largest error {errors[-1]:.2%}, ", end="")
    print(f"median {errors[len(errors) // 2]:.2%}; {held} intervals hold the actual bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
