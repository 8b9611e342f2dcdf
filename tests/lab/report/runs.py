"""Run folders and sweep records with numbers that a test chooses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from golf.bits import Score, nats_per_token
from golf.files import write_json
from golf.lab.report.rows import RunRow
from golf.lab.report.variants import Variant
from golf.run.identity import variant_id
from golf.run.result import Result, to_json
from golf.settings.config import Config, OptimConfig, to_dict

BYTES_PER_TOKEN = 2.43593
TOKENS = 100_000
LOWER_LR = {"0.06": 1.2445, "0.04": 1.2286, "0.03": 1.2279, "0.025": 1.2250, "0.02": 1.2230, "0.015": 1.2234}


def score(bpb: float, how: str = "standard") -> Score:
    return Score(nats_per_token(bpb, BYTES_PER_TOKEN), bpb, TOKENS, round(TOKENS * BYTES_PER_TOKEN), 1.0, how)


def with_lr(matrix_lr: float, **changes: Any) -> Config:
    return replace(Config(), optim=OptimConfig(matrix_lr=matrix_lr), **changes)


def finished(cfg: Config, bpb: float, seed: int, **changes: Any) -> Result:
    """Return a result of a finished run whose numbers agree with each other."""
    values: dict[str, Any] = {
        "state": "ok", "steps": 13_700, "train_seconds": 599.8, "step_ms": 43.8, "pre_quant": score(bpb - 0.005),
        "post_quant": score(bpb), "artifact_bytes": 15_800_000, "code_bytes": 47_642, "total_bytes": 15_847_642,
        "cap_bytes": 16_000_000, "data_name": "own", "data_fingerprint": "abcd", "eval_seconds": 1.3, **changes,
    }  # fmt: skip
    return Result(cfg.name, variant_id(cfg), seed, **values)


def write_run(
    root: Path,
    cfg: Config,
    bpb: float | None,
    seed: int = 1,
    *,
    attempt: int = 1,
    gpu: str = "H100",
    code: str = "",
    **changes: Any,
) -> Path:
    """Write the folder of a run and return it; without `bpb` it has no result yet, without `code` it notes none."""
    name = f"seed{seed}" + (f".{attempt}" if attempt > 1 else "")
    folder = root / f"{cfg.name}-{variant_id(cfg)}" / name
    folder.mkdir(parents=True)
    write_json(folder / "config.json", to_dict(replace(cfg, seed=seed)))
    machine = {"gpus": 8, "gpu": gpu, "cpu": "EPYC", "cpu_cores": 2}
    write_json(folder / "environment.json", {**machine, "code": {"golf": code}})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(train_event(i)) + "\n" for i in range(100)))
    if bpb is not None:
        write_json(folder / "result.json", to_json(finished(cfg, bpb, seed, **changes)))
    return folder


def train_event(number: int) -> dict[str, Any]:
    """Return a line of metrics.jsonl about a training step, the `number`-th of those that were logged."""
    place = {"step": 100 * number, "tokens": 51_200 * number, "train_seconds": 6.0 * number}
    return {"event": "train", **place, "train_loss": 7.0 - 0.04 * number, "lr_multiplier": 1.0}


def write_sweep(root: Path, name: str, runs: Sequence[tuple[Sequence[str], Config, int]], **changes: Any) -> None:
    """Write the record of a sweep; `runs` are (overrides, configuration, seed)."""
    record: Mapping[str, Any] = {
        "name": name, "command": ["python", "golf/train.py", "-m"], "created": "2026-01-01T00:00:00",
        "reference": None, "swept": ["optim.matrix_lr"], "kind": "grid",
        "runs": [
            {"overrides": list(overrides), "variant_id": variant_id(cfg), "seed": seed, "name": cfg.name}
            for overrides, cfg, seed in runs
        ],
        **changes,
    }  # fmt: skip
    write_json(root / "sweeps" / name / "sweep.json", record)


def write_lr_sweep(root: Path, scores: Mapping[float, Sequence[float]], name: str = "lr") -> None:
    """Write a finished sweep over learning rates; `scores` maps a value to the scores of seeds 1, 2, …."""
    runs = []
    for value, bpbs in scores.items():
        for seed, bpb in enumerate(bpbs, start=1):
            write_run(root, with_lr(value), bpb, seed)
            runs.append(([f"optim.matrix_lr={value}", f"seed={seed}"], with_lr(value), seed))
    write_sweep(root, name, runs)


def variant(name: str, scores: Sequence[float], **changes: Any) -> Variant:
    """Return a variant in memory with one run for each score."""
    values: dict[str, Any] = {"bytes_per_token": BYTES_PER_TOKEN, "how": "standard", "data": "abcd", **changes}
    rows = [RunRow(name, name, seed, val_bpb=bpb, **values) for seed, bpb in enumerate(scores, start=1)]
    return Variant(name, name, tuple(rows))
