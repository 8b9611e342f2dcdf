"""Step times come from finished runs of similar work on the same machine, or are unknown."""

import dataclasses
from pathlib import Path

import pytest

from golf.lab.plan.artifact_size import Interval
from golf.lab.plan.flops import flops_per_token
from golf.lab.plan.history import FinishedRun
from golf.lab.plan.seconds import compile_time, expected_step_time, steps_within_budget
from golf.run.folder import RunFolder
from golf.run.result import Result
from golf.settings.config import Config
from golf.system import cpu_cores
from golf.training.model.build import shapeless_model
from tests.support import compose

HERE = "Abacus, 2 cores"


@pytest.fixture(scope="module")
def cfg() -> Config:
    return compose(["scale=laptop", "model=4l", "launch.threads=1"])


def flops(cfg: Config) -> float:
    return flops_per_token(cfg, shapeless_model(cfg)).total * cfg.data.train_batch_tokens


def ran(cfg: Config, step_ms: float, machine: str = HERE) -> FinishedRun:
    return FinishedRun(RunFolder(Path("nowhere")), cfg, Result("x", "", 1, step_ms=step_ms), machine)


def test_same_operations_a_second(cfg: Config) -> None:
    speed = expected_step_time(cfg, 1.5 * flops(cfg), "Abacus, 2 cores", [ran(cfg, ms) for ms in (100.0, 90.0, 130.0)])
    assert speed.step_ms is not None and speed.step_ms == pytest.approx(Interval(135.0, 150.0, 195.0))
    assert "3 finished runs" in speed.basis


@pytest.mark.parametrize("what", ["machine", "work", "compile"])
def test_other_machines_other_work_and_other_graphs_say_nothing(cfg: Config, what: str) -> None:
    launch = dataclasses.replace(cfg.launch, compile="full" if what == "compile" else cfg.launch.compile)
    run = ran(dataclasses.replace(cfg, launch=launch), 100.0, "8× H100" if what == "machine" else HERE)
    speed = expected_step_time(cfg, flops(cfg) * (3 if what == "work" else 1), "Abacus, 2 cores", [run])
    assert speed.step_ms is None and "Abacus, 2 cores" in speed.basis


def test_runs_on_a_busy_machine_say_nothing(cfg: Config) -> None:
    fast, slow = ran(cfg, 100.0), ran(cfg, 900.0)
    slow.result.core_share, fast.result.core_share = 0.1, 0.95
    speed = expected_step_time(cfg, flops(cfg), HERE, [slow, fast])
    assert speed.step_ms == pytest.approx(Interval(100.0, 100.0, 100.0)) and "1 finished run" in speed.basis
    assert expected_step_time(cfg, flops(cfg), HERE, [slow]).step_ms is None


def test_runs_of_sweeps_with_all_cores_are_like_single_runs(cfg: Config) -> None:
    # A sweep writes the threads of its share down, where a single run has left them open.
    whole, cores = dataclasses.replace(cfg.launch, threads=None), cpu_cores()
    of_sweep = dataclasses.replace(cfg, launch=dataclasses.replace(cfg.launch, threads=cores))
    speed = expected_step_time(dataclasses.replace(cfg, launch=whole), flops(cfg), HERE, [ran(of_sweep, 100.0)])
    assert speed.step_ms is not None


def test_steps_until_the_clock_or_the_cap(cfg: Config) -> None:
    slow = Interval(100.0, 200.0, 400.0)
    assert steps_within_budget(cfg, slow) == (300.0, 600.0, 1200.0)  # 120 s
    capped = dataclasses.replace(cfg, schedule=dataclasses.replace(cfg.schedule, iterations=500))
    assert steps_within_budget(capped, slow) == (300.0, 500.0, 500.0)
    assert steps_within_budget(cfg, None) is None
    no_clock = dataclasses.replace(capped, budget=dataclasses.replace(cfg.budget, train_seconds=0.0))
    assert steps_within_budget(no_clock, None) == (500.0, 500.0, 500.0)


def test_compiling_is_measured_by_runs_of_the_model_or_an_estimate(cfg: Config) -> None:
    cfg = dataclasses.replace(cfg, launch=dataclasses.replace(cfg.launch, compile="off"))
    assert compile_time(cfg, HERE, []) is None
    compiled = dataclasses.replace(cfg, launch=dataclasses.replace(cfg.launch, compile="full"))
    first, second, eager = ran(compiled, 100.0), ran(compiled, 100.0), ran(cfg, 100.0)
    wider = dataclasses.replace(compiled, model=dataclasses.replace(cfg.model, model_dim=8))
    other, elsewhere = ran(wider, 100.0), ran(compiled, 100.0, "8× H100")
    for run, seconds in ((first, 22.0), (second, 4.0), (eager, 1.0), (other, 50.0), (elsewhere, 90.0)):
        run.result.warmup_seconds = seconds
    told = compile_time(compiled, HERE, [first, second, eager, other, elsewhere])
    assert told and told[:2] == (4.0, 22.0) and told.basis == "2 finished runs of this model here"
    guess = compile_time(compiled, HERE, [other, elsewhere])
    assert guess and guess.basis.startswith("an estimate") and guess.low < guess.high
