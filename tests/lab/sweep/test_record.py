"""The record of a sweep and its name."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from golf.errors import GolfError
from golf.lab.report.earlier_sweeps import first_variant
from golf.lab.report.findings import judged
from golf.lab.report.results import results_table
from golf.lab.report.study import read_study
from golf.lab.report.table import render
from golf.lab.sweep.jobs import Job, Refused
from golf.lab.sweep.record import extended, make_record, read_record, write_record
from golf.run.sweeps import sweep_folder, sweep_name
from golf.settings.composition import sweep_label
from golf.settings.config import RulesConfig
from tests.lab.report.runs import write_run
from tests.support import compose

COMMAND = ["golf/train.py", "-m", "optim.matrix_lr=0.02,0.03", "seed=1,2"]


def jobs(*overrides: str) -> list[Job]:
    return [Job.of(o.split(), compose(["scale=laptop", *o.split()])) for o in overrides]


GRID = "optim.matrix_lr=0.02 seed=1", "optim.matrix_lr=0.02 seed=2", "optim.matrix_lr=0.03 seed=1"


def test_a_record_says_what_was_asked_for(runs: Path) -> None:
    wanted = jobs(*GRID)
    record = make_record("lr-1", COMMAND, wanted, [Refused(("model.num_heads=5",), "does not divide")], None)
    write_record(record)
    stored = json.loads((runs / "sweeps" / "lr-1" / "sweep.json").read_text())
    assert stored["command"] == COMMAND and stored["name"] == "lr-1" and stored["created"].endswith("+00:00")
    assert (stored["swept"], stored["kind"], stored["reference"]) == (["optim.matrix_lr"], "grid", None)
    assert stored["runs"][2] == {
        "overrides": ["optim.matrix_lr=0.03", "seed=1"],
        "variant_id": wanted[2].key[0],
        "seed": 1,
        "name": "4l-int8",
    }
    assert stored["refused"] == [{"overrides": ["model.num_heads=5"], "error": "does not divide"}]
    assert read_record("lr-1") == record and read_record("lr-2") is None


@pytest.mark.parametrize(("asked", "has_reference"), [("null", True), ("first", True), ("none", False)])
def test_a_table_has_no_reference_if_none_was_asked_for(asked: str, has_reference: bool, runs: Path) -> None:
    wanted = jobs(*(f"{job} sweep.reference={asked}" for job in GRID))
    write_record(make_record("lr-1", COMMAND, wanted, [], None))
    for job, bpb in zip(wanted, (1.22, 1.23, 1.24), strict=True):
        write_run(runs, job.cfg, bpb, job.cfg.seed)
    study = read_study(["lr-1"])
    assert (study.reference is study.variants[0]) if has_reference else study.reference is None
    assert ("Verdicts by" in render(results_table(judged(study, RulesConfig())), "text")) == has_reference
    assert read_study(["lr-1"], "0.03").reference is not None
    assert bool(first_variant(dataclasses.asdict(make_record("x", COMMAND, wanted, [], None)))) == has_reference


def test_a_refused_value_counts_as_swept(runs: Path) -> None:
    record = make_record("x", COMMAND, jobs("quant=int8"), [Refused(("quant=int6_context",), "needs numba")], None)
    assert record.swept == ["quant"] and record.kind == "grid"


def test_a_sweep_of_which_nothing_runs_is_a_table_of_what_was_refused(runs: Path) -> None:
    refused = [Refused((f"model.num_heads={n}",), "does not divide") for n in (5, 7)]
    write_record(make_record("lr-1", COMMAND, [], refused, None))
    assert [v.rows[0].state for v in read_study(["lr-1"]).variants] == ["refused", "refused"]
    bundles = [Refused(("model.num_heads=5",), "no"), Refused(("optim.beta2=7",), "no")]
    write_record(make_record("lr-2", COMMAND, [], bundles, None))
    assert [v.label for v in read_study(["lr-2"]).variants] == ["model.num_heads=5", "optim.beta2=7"]


def test_the_same_command_keeps_its_first_date_and_a_broken_record_is_named(runs: Path) -> None:
    first = make_record("x", COMMAND, jobs(GRID[0]), [], None)
    first.created = "2026-01-01T00:00:00+00:00"
    assert make_record("x", COMMAND, jobs(*GRID), [], first).created == first.created
    (sweep_folder("x")).mkdir(parents=True)
    (sweep_folder("x") / "sweep.json").write_text('{"what": 1}')
    with pytest.raises(GolfError, match=r"sweep\.json is not a sweep"):
        read_record("x")


def test_batches_of_a_search_add_up(runs: Path) -> None:
    first, second = (make_record("x", COMMAND, jobs(*part), [], None) for part in (GRID[:2], GRID[1:]))
    both = extended(first, second)
    assert [run["seed"] for run in both.runs] == [1, 2, 1] and both.swept == ["optim.matrix_lr"]


def test_rows_of_bundles_are_named_by_what_they_set_after_rounds_with_fewer_of_them(runs: Path) -> None:
    """The last round has two bundles that name the same settings, where the first one had another, too."""
    bundles = "optim.matrix_lr=0.04", "optim.matrix_lr=0.02", "optim.matrix_lr=0.04 optim.beta2=0.99"
    first, last = jobs(*(f"{b} seed=1" for b in bundles)), jobs(*(f"{b} seed=2" for b in bundles[:2]))
    record = extended(*(make_record("x", COMMAND, part, [], None) for part in (first, last)))
    assert record.swept == []
    write_record(record)
    for job, bpb in zip([*first, *last], (1.22, 1.23, 1.24, 1.221, 1.231), strict=True):
        write_run(runs, job.cfg, bpb, job.cfg.seed)
    labels = [v.label for v in read_study(["x"]).variants]
    # Few settings differ, so each row has all of them.
    assert labels == [f"optim.beta2={b} optim.matrix_lr={lr}" for b, lr in ((0.95, 0.04), (0.95, 0.02), (0.99, 0.04))]
    many = [*first, *jobs("optim.matrix_lr=0.04 model.qk_gain_init=3 seed=1 optim.muon_momentum=0.9")]
    write_record(make_record("y", COMMAND, many, [], None))
    assert [v.label for v in read_study(["y"]).variants] == [
        *("4l-int8", "optim.matrix_lr=0.02", "optim.beta2=0.99", "model.qk_gain_init=3 optim.muon_momentum=0.9")
    ]


@pytest.mark.parametrize(
    ("overrides", "kind", "has_reference"),
    [
        (["seed=1", "seed=2"], "seeds", False),
        (["seed=1"], "grid", False),
        (["drop=[] tech=[xsa,ema]", "drop=[xsa] tech=[xsa,ema]"], "leave_one_out", True),
        (["drop=[ema] tech=[xsa,ema]", "drop=[xsa] tech=[xsa,ema]"], "grid", False),
        (["drop=[xsa] tech=[xsa]", "drop=[] tech=[xsa]"], "add_one", True),
        (["drop=[ema,xsa] tech=[xsa,ema]", "drop=[ema] tech=[xsa,ema]"], "add_one", True),
        (["sweep=lower_lr optim.matrix_lr=0.04", "sweep=lower_lr optim.matrix_lr=0.02"], "grid", True),
        (["sweep=add_one tech=[xsa] drop=[xsa]", "sweep=add_one tech=[xsa]"], "add_one", True),
        (["sweep=interaction tech=[xsa,ema] drop=[xsa,ema]", "sweep=interaction tech=[xsa,ema]"], "interaction", True),
    ],
)
def test_the_kind_is_told_or_said(overrides: list[str], kind: str, has_reference: bool) -> None:
    wanted = jobs(*overrides)
    record = make_record("x", COMMAND, wanted, [], None)
    assert record.kind == kind and record.reference == (wanted[0].key[0] if has_reference else None)


def test_a_sweep_of_nothing_is_a_grid() -> None:
    record = make_record("x", COMMAND, [], [Refused(("a=1",), "no")], None)
    assert (record.kind, record.reference, record.swept, record.runs) == ("grid", None, [], [])


def named(*arguments: str) -> str:
    return sweep_name(sweep_label([a for a in arguments if not a.startswith("-")]), arguments)


def test_a_name_comes_from_the_command_alone() -> None:
    name = named("-m", "optim.matrix_lr=0.02,0.03", "seed=range(1,4)", "scale=laptop")
    assert name.startswith("matrix_lr_seed-")
    assert name == named("-m", "seed=range(1,4)", "optim.matrix_lr=0.02,0.03", "scale=laptop", "launch.jobs=2")
    assert name != named("-m", "optim.matrix_lr=0.02,0.03", "seed=range(1,5)", "scale=laptop")
    assert named("sweep=lower_lr").startswith("lower_lr-")
    assert not named("seed=1,2").startswith("seed") and not named("sweep=seeds").startswith("seed")
    assert named("name=fail", "seed=7,8").startswith("fail-") and named("sweep=seeds", "name=x").startswith("x-")
    assert named("model=9l").startswith("sweep-") and named("a=[1,").startswith("sweep-")
