"""Predicted bytes of runs that were really trained and that neither the prediction nor its shipped gaps know of.

finished_runs.*.json hold what `scripts/bench_plan.py --fixture` measured on them: sizes of their weights, bytes of the
checkpoints in one number format, and the gaps of the runs that are evidence. docs/benchmarks.md has the trainings.
"""

import functools
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from golf.artifact.quant.policy import rounded_to_nearest
from golf.plan.history import FinishedRun, Statistics
from golf.plan.size import artifact_size
from golf.plan.tensors import stored_tensors
from golf.run.folder import RunFolder
from golf.run.result import Result
from golf.settings.composition import compose
from golf.settings.config import Config
from golf.training.loop.quant_gap import quant_of
from golf.training.model.build import shapeless_model

LIMIT = {"std": 0.01, "max": 0.03, "floor": 0.03}
# Under a floor the size of the weights counts, which only finished runs tell well enough.
CASES = [("std", True), ("std", False), ("max", True), ("max", False), ("floor", True)]
RECORDED = {law: json.loads(Path(__file__).with_name(f"finished_runs.{law}.json").read_text()) for law in LIMIT}
FAST = ("t1", "t7")
PREDICTED = [
    pytest.param(run["name"], marks=[] if run["name"] in FAST else pytest.mark.slow)
    for run in RECORDED["std"]["runs"]
    if not run["gaps"]
]


@functools.cache
def config(name: str, law: str) -> Config:
    run = next(run for run in RECORDED[law]["runs"] if run["name"] == name)
    trained = [o for o in run["overrides"] if not o.startswith("quant")]  # its weights are stored as `law` says
    cfg = compose([*trained, "model.compute_dtype=fp32"])
    return replace(cfg, quant=quant_of(RECORDED[law]["quant"], cfg))


def finished(run: dict[str, Any], law: str, folder: Path) -> FinishedRun:
    """A run as history knows it, whose checkpoint has been stored in these formats already."""
    cfg = config(run["name"], law)
    gaps = {json.dumps(asdict(rounded_to_nearest(cfg.quant)), sort_keys=True): run["gaps"]}
    folder.mkdir()
    (folder / "plan_statistics.json").write_text(json.dumps(asdict(Statistics(run["sizes"], gaps))))
    known = {key: run[key] for key in ("steps", "artifact_bytes", "model_params")}
    return FinishedRun(RunFolder(folder), cfg, Result(run["name"], "", cfg.seed, **known), {})


@pytest.mark.parametrize("law, learns", CASES)
@pytest.mark.parametrize("name", PREDICTED)
def test_within_the_limit_and_the_interval(name: str, law: str, learns: bool, tmp_path: Path) -> None:
    recorded = {run["name"]: run for run in RECORDED[law]["runs"]}
    run = recorded[name]
    cfg = config(run["name"], law)
    evidence = [known for known in recorded.values() if known["gaps"] and learns]
    history = [finished(known, law, tmp_path / known["name"]) for known in evidence]
    tensors = stored_tensors(cfg, shapeless_model(cfg).state_dict())
    size = artifact_size(cfg, tensors, run["steps"], history)
    low, expected, high = size.bytes
    assert low < run["artifact_bytes"] < high and size.compared == len(history)
    assert expected == pytest.approx(run["artifact_bytes"], rel=LIMIT[law])
    assert sum(t.numel for t in tensors) == run["model_params"]
