"""Predicted against actual artifact bytes: `python scripts/bench_plan.py --runs FOLDER`.

Every finished run under `--runs` is planned again from its own configuration, and the prediction is set beside the
bytes of its artifact. With `--quant "PRESET quant.key=value"` each checkpoint is stored under that instead, without
calibration, and predicted so. `--fit` prints golf/lab/plan/priors.csv's lines for these runs, from what their trained
weights take beyond Gaussian ones of the same size. `--fixture` writes what the test of predictions reads.
"""

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from golf.artifact.quant.policy import rounded_to_nearest
from golf.errors import GolfError
from golf.lab.artifacts.quant_gap import stored_config
from golf.lab.plan.artifact_size import role_features
from golf.lab.plan.excess_bits import NORMAL_BATCH, NORMAL_PATH, Prior, matrix_kind
from golf.lab.plan.history import FinishedRun, finished_runs
from golf.lab.plan.plan import Plan, make_plan
from golf.lab.plan.simulation import Simulation, price, simulate
from golf.lab.plan.tensors import StoredTensor, matrix_roles, stored_tensors, weights_by_role
from golf.settings.config import Config, uses_gptq
from golf.training.loop.export import pack_model, round_model
from golf.training.model.build import shapeless_model
from golf.training.model.weights import read_weights

RIDGE, FEW = 0.3, 3  # runs that say little about what is left over
HEAD = "| run | formats | scale | codec | actual | predicted | error | interval |\n|---|---|---|---|---|---|---|---|"


def compared(run: FinishedRun, plan: Plan) -> tuple[str, float, bool]:
    """Return a table row, the relative error of the expected bytes, and whether the interval holds the actual ones."""
    actual, quant = run.result.artifact_bytes or 0, run.config.quant
    low, expected, high = plan.artifact.bytes
    error, formats = expected / actual - 1, "/".join(how.format for how in (quant.embed, quant.attn, quant.mlp))
    interval = f"{low / expected - 1:+.1%} … {high / expected - 1:+.1%}"
    scale = "floor" if quant.scale_floor == "one_over_qmax" else "own range"
    cells = (run.result.name, formats, scale, quant.codec, f"{actual:,}", f"{expected:,.0f}", f"{error:+.2%}", interval)
    return f"| {' | '.join(cells)} |", error, low <= actual <= high


def stored_as(run: FinishedRun, choice: str) -> FinishedRun:
    """Return the run as if its weights had been stored under `choice`, a preset of conf/quant with overrides."""
    cfg = stored_config(choice, run.config)
    if uses_gptq(cfg.quant):
        raise GolfError(f"--quant '{choice}' needs calibration: set rounding=nearest for every class.")
    weights = read_weights(run.folder.weights)
    packed = pack_model(cfg, weights, round_model(cfg, weights, run.result.code_bytes or 0)).artifact
    return dataclasses.replace(run, config=cfg, result=dataclasses.replace(run.result, artifact_bytes=len(packed)))


def recorded(run: FinishedRun) -> dict[str, Any]:
    """Return what a prediction needs of a run, for tests/lab/plan/finished_runs.*.json without weights."""
    command = json.loads((run.folder.path / "environment.json").read_text(encoding="utf-8"))["command"]
    return {
        "name": run.result.name,
        # Settings of the machine that trained are none of the machine that tests.
        "overrides": [a for a in command[1:] if not a.startswith("launch.")],
        "steps": run.result.steps,
        "artifact_bytes": run.result.artifact_bytes,
        "model_params": run.result.model_params,
    }


def simulate_trained(
    cfg: Config, tensors: Sequence[StoredTensor], trained: Mapping[str, Tensor], *, apart: bool = False
) -> Simulation:
    """Return the bytes of `tensors` for a sample of `trained` weights: rows at equal distances in each tensor."""

    def weights(tensor: StoredTensor, shape: tuple[int, ...]) -> Tensor:
        whole = trained[tensor.name]
        return whole[torch.arange(shape[0]) * whole.size(0) // shape[0]] if shape and whole.numel() else whole

    return price(cfg, tensors, weights, apart)


def excess_bits(run: FinishedRun) -> dict[str, float]:
    """Return the excess bits of a run's trained weights by role: each role compressed alone, plus a share of the rest.

    The rest is the difference of the whole file from its parts, in equal shares a weight. All codes are rounded to
    nearest, because Hessians are not kept.
    """
    cfg = dataclasses.replace(run.config, quant=rounded_to_nearest(run.config.quant))
    tensors = stored_tensors(cfg, shapeless_model(cfg).state_dict())
    trained = read_weights(run.folder.weights)
    squares: dict[str, list[Tensor]] = {}
    for tensor in tensors:
        if len(tensor.shape) == 2 and tensor.numel:
            squares.setdefault(tensor.role, []).append(trained[tensor.name].float().square().mean(1).sqrt())
    # The Gaussian weights get the size of the trained ones, so that only their distribution differs.
    rms = {role: float(torch.cat(found).mean()) for role, found in squares.items()}
    gaussian = simulate(cfg, tensors, rms, apart=True).by_role
    stored = simulate_trained(cfg, tensors, trained, apart=True).by_role
    weights = weights_by_role(tensors)
    bits = {role: 8 * (stored[role] - gaussian[role]) / weights[role] for role in matrix_roles(tensors)}
    # Golf's own coder compresses every role alone, so there is no rest.
    if cfg.quant.codec == "context":
        return bits
    alone = sum(bits[role] * weights[role] for role in bits) / 8
    difference = simulate_trained(cfg, tensors, trained).total - simulate(cfg, tensors, rms).total
    rest = 8 * (difference - alone) / max(sum(weights[role] for role in bits), 1)
    return {role: own + rest for role, own in bits.items()}


def fitted(runs: Sequence[FinishedRun]) -> dict[str, Prior]:
    """Fit the excess bits of each kind of matrix to log path, log batch and log columns / rows by least squares."""
    rows: dict[str, list[tuple[list[float], float]]] = {}
    for run in runs:
        cfg = run.config
        tensors = stored_tensors(cfg, shapeless_model(cfg).state_dict())
        excess = excess_bits(run)
        for role, features in role_features(cfg, tensors, run.result.steps).items():
            path, batch, aspect = features.coordinates()
            known = ([1.0, path - math.log(NORMAL_PATH), batch - math.log(NORMAL_BATCH), aspect], excess[role])
            rows.setdefault(matrix_kind(role, cfg.model.tie_embeddings), []).append(known)
    return {kind: _prior(known) for kind, known in rows.items()}


def _prior(known: Sequence[tuple[list[float], float]]) -> Prior:
    x, y = np.array([where for where, _ in known]), np.array([bits for _, bits in known])
    # The ridge leaves the constant alone: only slopes that few runs tell are drawn towards zero.
    found = np.linalg.solve(x.T @ x + np.diag([1e-6, RIDGE, RIDGE, RIDGE]), x.T @ y)
    left = float(np.square(y - x @ found).sum() / max(len(y) - 3, 1)) ** 0.5
    bits, path, batch, aspect = (round(float(v), 3) for v in found)
    return Prior(bits, path, batch, aspect, sd=round(left if len(y) > FEW else max(left, 0.1), 3))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True, help="runs to predict")
    parser.add_argument("--quant", help="a preset of conf/quant with overrides, in quotes, instead of the runs' own")
    parser.add_argument("--fit", action="store_true", help="print priors fitted to --runs, predict nothing")
    parser.add_argument("--fixture", type=Path, help="write what the test of predictions reads")
    arguments = parser.parse_args()
    runs = finished_runs(arguments.runs)
    if not runs:
        print(f"error: there are no finished runs under {arguments.runs}.", file=sys.stderr)
        return 2
    if arguments.quant:
        try:
            runs = [stored_as(run, arguments.quant) for run in runs]
        except GolfError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
    if arguments.fit:
        for kind, prior in fitted(runs).items():
            print(",".join([kind, *map(str, prior)]))
        return 0
    print(HEAD)
    found = []
    for run in sorted(runs, key=lambda r: (r.config.quant.scale_floor, r.result.name)):
        row, *rest = compared(run, make_plan(run.config, []))
        found.append(rest)
        print(row, flush=True)
    if arguments.fixture:
        known = {"quant": arguments.quant, "runs": [recorded(run) for run in runs]}
        arguments.fixture.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    errors = sorted(abs(error) for error, _ in found)
    held = sum(holds for _, holds in found)
    print(f"\n{len(found)} runs: largest error {errors[-1]:.2%}, ", end="")
    print(f"median {errors[len(errors) // 2]:.2%}; {held} intervals hold the actual bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
