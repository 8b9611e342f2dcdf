"""Predicted bytes of runs that were really trained and that the prediction knows nothing of.

finished_runs.json holds what `scripts/bench_plan.py --fixture` measured on them: sizes of their weights, bytes of their
artifacts, and how other runs' checkpoints weigh in their formats. docs/benchmarks.md has the trainings.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from golf.composition import compose
from golf.config import Config
from golf.plan.history import FinishedRun, Statistics
from golf.plan.size import artifact_size
from golf.plan.tensors import shapeless_model, stored_tensors
from golf.run.folder import RunFolder
from golf.run.result import Result

RECORDED = {run["name"]: run for run in json.loads(Path(__file__).with_name("finished_runs.json").read_text())}
EVIDENCE = [run for run in RECORDED.values() if run["ratios"]]
PREDICTED = ["t1", "t3", "t5", "t9", "t10", "t12"]
SLOW = ["t2", "t4", "t6", "t7", "t8", "t13", "t14", "t15", "t16", "t17"]


def config(run: dict[str, Any]) -> Config:
    return compose([*run["overrides"], "model.compute_dtype=fp32"])


def finished(run: dict[str, Any], planned: dict[str, Any], cfg: Config, folder: Path) -> FinishedRun:
    """A run as history knows it, whose checkpoint has been stored in the formats of `planned` already."""
    of = config(run)
    ratios = {json.dumps(asdict(cfg.quant), sort_keys=True): run["ratios"][planned["name"]]}
    folder.mkdir()
    (folder / "plan_statistics.json").write_text(json.dumps(asdict(Statistics(run["sizes"], ratios))))
    known = {key: run[key] for key in ("steps", "artifact_bytes", "model_params")}
    return FinishedRun(RunFolder(folder), of, Result(run["name"], "", of.seed, **known), {})


@pytest.mark.parametrize("name", [*PREDICTED, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_within_three_percent_and_the_interval(name: str, tmp_path: Path) -> None:
    run = RECORDED[name]
    cfg = config(run)
    history = [finished(known, run, cfg, tmp_path / known["name"]) for known in EVIDENCE]
    tensors = stored_tensors(cfg, shapeless_model(cfg).state_dict())
    size = artifact_size(cfg, tensors, run["steps"], history)
    low, expected, high = size.bytes
    assert expected == pytest.approx(run["artifact_bytes"], rel=0.03)
    assert low < run["artifact_bytes"] < high
    assert sum(t.numel for t in tensors) == run["model_params"] and size.compared == 5
