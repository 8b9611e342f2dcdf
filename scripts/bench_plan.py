"""Predicted against actual artifact bytes: `python scripts/bench_plan.py --evidence FOLDER --runs FOLDER`.

Every finished run under `--runs` is planned again from its own configuration, with those under `--evidence` (none of
them the same run) as history, and the prediction is set beside the bytes of its artifact.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from golf.plan.history import FinishedRun, finished_runs
from golf.plan.plan import Plan, make_plan

HEAD = "| run | formats | scale | codec | actual | predicted | error | interval |\n|---|---|---|---|---|---|---|---|"


def compared(run: FinishedRun, plan: Plan) -> tuple[str, float, bool]:
    """Table row, relative error of the expected bytes, whether the interval holds the actual ones."""
    actual, quant = run.result.artifact_bytes or 0, run.config.quant
    low, expected, high = plan.artifact.bytes
    error, formats = expected / actual - 1, "/".join(how.format for how in (quant.embed, quant.attn, quant.mlp))
    interval = f"{low / expected - 1:+.1%} … {high / expected - 1:+.1%}"
    scale = "floor" if plan.artifact.sized else "own range"
    cells = (run.result.name, formats, scale, quant.codec, f"{actual:,}", f"{expected:,.0f}", f"{error:+.2%}", interval)
    return f"| {' | '.join(cells)} |", error, low <= actual <= high


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
    parser.add_argument("--evidence", type=Path, required=True, help="runs that the predictions may learn from")
    parser.add_argument("--runs", type=Path, required=True, help="runs to predict")
    parser.add_argument("--fixture", type=Path, help="write what the test of predictions reads")
    arguments = parser.parse_args()
    evidence, runs = finished_runs(arguments.evidence), finished_runs(arguments.runs)
    if not runs:
        print(f"error: there are no finished runs under {arguments.runs}.", file=sys.stderr)
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
