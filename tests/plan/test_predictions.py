"""Predicted bytes of trained runs that neither the prediction nor its shipped priors have seen.

finished_runs.*.json are written by `scripts/bench_plan.py --fixture`: sizes of the weights, bytes of the checkpoints in
one number format, and the excess bits of the runs that are evidence. docs/benchmarks.md describes the trainings.
"""

import functools
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from golf.artifact.quant.policy import rounded_to_nearest
from golf.plan.artifact_size import artifact_size
from golf.plan.history import FinishedRun, Statistics
from golf.plan.tensors import stored_tensors
from golf.run.folder import RunFolder
from golf.run.result import Result
from golf.settings.config import Config
from golf.training.loop.quant_gap import quant_of
from golf.training.model.build import shapeless_model
from tests.support import compose

LIMIT = {"std": 0.01, "max": 0.03, "floor": 0.03}
# Under a floor the bytes depend on the size of the weights, which only finished runs predict well enough.
CASES = [("std", True), ("std", False), ("max", True), ("max", False), ("floor", True)]
RECORDED = {rule: json.loads(Path(__file__).with_name(f"finished_runs.{rule}.json").read_text()) for rule in LIMIT}
FAST = ("t1", "t7")
PREDICTED = [
    pytest.param(run["name"], marks=[] if run["name"] in FAST else pytest.mark.slow)
    for run in RECORDED["std"]["runs"]
    if not run["excess_bits"]
]


@functools.cache
def config(name: str, rule: str) -> Config:
    run = next(run for run in RECORDED[rule]["runs"] if run["name"] == name)
    trained = [o for o in run["overrides"] if not o.startswith("quant")]  # the fixture's format replaces the run's
    cfg = compose([*trained, "model.compute_dtype=fp32"])
    return replace(cfg, quant=quant_of(RECORDED[rule]["quant"], cfg))


def finished(run: dict[str, Any], rule: str, folder: Path) -> FinishedRun:
    """Return a finished run whose checkpoint has been measured in these formats already."""
    cfg = config(run["name"], rule)
    excess_bits = {json.dumps(asdict(rounded_to_nearest(cfg.quant)), sort_keys=True): run["excess_bits"]}
    folder.mkdir()
    (folder / "plan_statistics.json").write_text(json.dumps(asdict(Statistics(run["sizes"], excess_bits))))
    known = {key: run[key] for key in ("steps", "artifact_bytes", "model_params")}
    return FinishedRun(RunFolder(folder), cfg, Result(run["name"], "", cfg.seed, **known), {})


@pytest.mark.parametrize("rule, learns", CASES)
@pytest.mark.parametrize("name", PREDICTED)
def test_within_the_limit_and_the_interval(name: str, rule: str, learns: bool, tmp_path: Path) -> None:
    recorded = {run["name"]: run for run in RECORDED[rule]["runs"]}
    run = recorded[name]
    cfg = config(run["name"], rule)
    evidence = [known for known in recorded.values() if known["excess_bits"] and learns]
    history = [finished(known, rule, tmp_path / known["name"]) for known in evidence]
    tensors = stored_tensors(cfg, shapeless_model(cfg).state_dict())
    size = artifact_size(cfg, tensors, run["steps"], history)
    low, expected, high = size.bytes
    assert low < run["artifact_bytes"] < high and size.compared == len(history)
    assert expected == pytest.approx(run["artifact_bytes"], rel=LIMIT[rule])
    assert sum(t.numel for t in tensors) == run["model_params"]


TRELLIS = json.loads(Path(__file__).with_name("finished_runs.trellis.json").read_text())["runs"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "learns"), [("e", True), ("f", False)])
def test_a_trellis_is_predicted_within_one_percent(name: str, learns: bool, tmp_path: Path) -> None:
    """Short trainings that the shipped numbers have not seen, stored by `quant=trellis`; a to d were fitted to."""

    def known(run: dict[str, Any]) -> FinishedRun:
        cfg = compose(run["overrides"])
        folder = tmp_path / run["name"]
        folder.mkdir()
        bits = {json.dumps(asdict(cfg.quant), sort_keys=True): run["excess_bits"]}
        (folder / "plan_statistics.json").write_text(json.dumps(asdict(Statistics(run["sizes"], bits))))
        result = Result(run["name"], "", cfg.seed, steps=run["steps"], artifact_bytes=run["artifact_bytes"])
        return FinishedRun(RunFolder(folder), cfg, result, {})

    (run,) = (run for run in TRELLIS if run["name"] == name)
    cfg = compose(run["overrides"])
    history = [known(other) for other in TRELLIS if learns and other["name"] in "abcd"]
    size = artifact_size(cfg, stored_tensors(cfg, shapeless_model(cfg).state_dict()), run["steps"], history)
    assert size.compared == len(history)
    assert size.bytes.low < run["artifact_bytes"] < size.bytes.high
    assert size.bytes.expected == pytest.approx(run["artifact_bytes"], rel=0.01)
