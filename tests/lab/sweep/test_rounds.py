"""Sweeps in rounds: who runs next, what a plan keeps, and a killed sweep that decides as if nothing had happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from golf.errors import GolfError
from golf.lab.corpora.own_text import OwnDataset
from golf.lab.report.findings import judged
from golf.lab.report.results import results_table
from golf.lab.report.study import read_study
from golf.lab.sweep.jobs import Job, Refused
from golf.lab.sweep.record import make_record, read_record, write_record
from golf.lab.sweep.rounds import decisions, next_round, planned, run_until_decided
from golf.run.result import CRASHED, OK
from golf.run.sweeps import Row, sweep_name
from golf.settings.composition import rules_named
from golf.settings.config import Config, from_dict
from golf.settings.jobs_config import LaunchConfig, SweepConfig
from tests.lab.report.runs import with_lr, write_run
from tests.support import ROOT, golf_main, tiny_overrides

NAME = "lr-1234abcd"
SD = 0.0007


def jobs(*rates: float, **sweep: object) -> list[Job]:
    settings = SweepConfig(until="decided", **sweep)  # type: ignore[arg-type]
    return [Job.of([f"optim.matrix_lr={rate}"], replace(with_lr(rate), sweep=settings)) for rate in rates]


def record_rounds(runs: Path, asked: list[Job], scores: dict[float, list[float]]) -> None:
    """Write the runs of the first rounds and the sweep's record."""
    _, plan = planned(asked, NAME)
    done = []
    for rate, bpbs in scores.items():
        for seed, bpb in zip(plan.seeds, bpbs, strict=False):
            write_run(runs, with_lr(rate), bpb, seed)
            done.append(Job.of([f"optim.matrix_lr={rate}"], replace(with_lr(rate), seed=seed)))
    record = make_record(NAME, [], done, [], read_record(NAME))
    write_record(replace(record, sequential=asdict(plan)))


def test_a_round_asks_for_the_reference_and_all_that_are_undecided(runs: Path) -> None:
    asked = jobs(0.04, 0.03, 0.02, max_seeds=4)
    variants, plan = planned(asked, NAME)
    assert plan.seeds == (1337, 1, 2, 3)
    first = next_round(NAME, variants, plan, decisions(NAME, variants, plan))
    assert [(job.cfg.optim.matrix_lr, job.cfg.seed) for job in first] == [(0.04, 1337), (0.03, 1337), (0.02, 1337)]
    assert first[0].overrides == ("optim.matrix_lr=0.04", "seed=1337")
    record_rounds(runs, asked, {0.04: [1.1, 1.1003], 0.03: [1.4, 1.4002], 0.02: [1.0999, 1.1002]})
    done = decisions(NAME, variants, plan)
    second = next_round(NAME, variants, plan, done)
    assert done.looks == 2
    assert [(job.cfg.optim.matrix_lr, job.cfg.seed) for job in second] == [(0.04, 2), (0.02, 2)]


def test_no_round_begins_that_would_exceed_the_most_runs(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = jobs(0.04, 0.02, max_runs=3)
    record_rounds(runs, asked, {0.04: [1.1], 0.02: [1.1001]})
    variants, plan = planned(asked, NAME)
    assert next_round(NAME, variants, plan, decisions(NAME, variants, plan)) == []
    assert "sweep.max_runs=3 admits no further round of 2 runs" in capsys.readouterr().out


def test_an_ended_sweep_shows_its_table_again(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record_rounds(runs, jobs(0.04, 0.02, max_seeds=2), {0.04: [1.1, 1.1002], 0.02: [1.3, 1.3002]})
    rows: list[Row] = []
    run_until_decided(jobs(0.04, 0.02, max_seeds=2), name=NAME, rows=rows)
    assert len(rows) == 4 and "4 finished before" in capsys.readouterr().out
    fresh = [
        replace(job, cfg=replace(job.cfg, launch=LaunchConfig(fresh=True))) for job in jobs(0.04, 0.02, max_seeds=2)
    ]
    with pytest.raises(GolfError, match=r"launch\.fresh=true would repeat runs of .* a look cannot be undone"):
        run_until_decided(fresh, name=NAME, rows=rows)


def test_a_plan_cannot_change_after_a_look(runs: Path) -> None:
    record_rounds(runs, jobs(0.04, 0.02, max_seeds=4), {0.04: [1.1], 0.02: [1.1]})
    with pytest.raises(GolfError, match=r"began with 4 rounds .*give the same settings again"):
        planned(jobs(0.04, 0.02, max_seeds=9), NAME)
    with pytest.raises(GolfError, match="list two values"):
        planned(jobs(0.04), NAME)
    with pytest.raises(GolfError, match=r"optim\.matrix_lr=-1: it has to be above 0"):
        planned([*jobs(0.04), Refused(("optim.matrix_lr=-1",), "it has to be above 0")], "another")
    asked = ["-m", "optim.matrix_lr=0.02,0.03"]
    assert sweep_name("lr", asked) != sweep_name("lr", [*asked, "sweep.until=decided"])
    assert sweep_name("lr", asked) == sweep_name("lr", [*asked, "sweep.max_seeds=7"])


def test_rounds_of_what_is_left_out_ask_whether_it_is_needed(runs: Path) -> None:
    asked = [
        Job.of([f"drop={drop}"], replace(with_lr(rate), drop=drop, sweep=SweepConfig(until="decided", max_seeds=4)))
        for rate, drop in ((0.04, []), (0.03, ["xsa"]))
    ]
    assert planned(asked, "drops")[1].asks_worse and not planned(jobs(0.04, 0.02), "rates")[1].asks_worse
    assert planned(jobs(0.04, 0.02, asks="worse"), "rates")[1].asks_worse
    record_rounds(runs, jobs(0.04, 0.02, max_seeds=4), {0.04: [1.1], 0.02: [1.1]})
    with pytest.raises(GolfError, match="A plan cannot change"):
        planned(jobs(0.04, 0.02, max_seeds=4, asks="worse"), NAME)
    # A sweep that began before the question could be asked goes on with its own.
    path = runs / "sweeps" / NAME / "sweep.json"
    record = json.loads(path.read_text())
    del record["sequential"]["asks_worse"]
    path.write_text(json.dumps(record))
    assert not planned(jobs(0.04, 0.02, max_seeds=4, asks="worse"), NAME)[1].asks_worse


def test_a_sweep_of_the_removed_test_is_shown_and_not_continued(runs: Path) -> None:
    record_rounds(runs, jobs(0.04, 0.02, max_seeds=4), {0.04: [1.1, 1.101], 0.02: [1.1, 1.102]})
    path = runs / "sweeps" / NAME / "sweep.json"
    record = json.loads(path.read_text())
    record["sequential"] = {**record["sequential"], "prior": {"sd": 0.0007, "df": 5.0, "groups": 30}}
    del record["sequential"]["moderated"]
    path.write_text(json.dumps(record))
    notes = " ".join(results_table(judged(read_study([NAME]), rules_named("house"))).notes)
    assert "sweep.test=moderated, which golf no longer has: these verdicts are Welch's test" in notes
    with pytest.raises(GolfError, match=r"sweep\.test=moderated, which golf no longer has"):
        planned(jobs(0.04, 0.02, max_seeds=4), NAME)
    assert from_dict(Config, {"sweep": {"test": "moderated", "prune": 0.002}}).sweep == Config().sweep


@pytest.mark.slow
def test_a_killed_sweep_decides_the_same(tiny: OwnDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [
        "-m",
        *tiny_overrides(tiny),
        "optim.matrix_lr=0.02,1e-6",
        "optim.tied_embed_lr=0.02",
        "schedule.iterations=2",
        "sweep.until=decided",
        "sweep.max_seeds=3",
    ]

    def table(root: Path) -> str:
        (record,) = root.glob("sweeps/*/sweep.json")
        monkeypatch.setenv("GOLF_RUNS", str(root))
        command = [sys.executable, "-m", "golf.commands.cli", "report", record.parent.name, "--format", "csv"]
        shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return "\n".join(",".join(line.split(",")[:12]) for line in shown.splitlines())

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    monkeypatch.setenv("GOLF_RUNS", str(whole))
    done = golf_main(*arguments)
    assert done.returncode == 0, done.stderr
    assert "after round 2 of at most 3" in done.stdout
    asked = json.loads(next(whole.glob("sweeps/*/sweep.json")).read_text())
    assert len(asked["runs"]) == 4, "the third round is not needed"

    monkeypatch.setenv("GOLF_RUNS", str(killed))
    command = [sys.executable, str(ROOT / "golf/train.py"), *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("started") and "seed=1 " in line:
                break
        os.killpg(process.pid, signal.SIGKILL)
    again = golf_main(*arguments)
    assert again.returncode == 0, again.stderr
    assert table(killed) == table(whole)
    # The system ended a run that a round has counted: the same command makes it again, as in any sweep.
    result = next(killed.glob("*/seed1/result.json"))
    result.write_text(json.dumps({**json.loads(result.read_text()), "state": CRASHED}))
    monkeypatch.setenv("GOLF_RUNS", str(killed))
    remade = golf_main(*arguments)
    assert remade.returncode == 0, remade.stdout
    states = [json.loads(path.read_text())["state"] for path in result.parent.parent.glob("seed1*/result.json")]
    assert sorted(states) == [CRASHED, OK, OK] and table(killed) == table(whole)
