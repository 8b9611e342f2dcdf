"""A dry run says what would run, for how long and what has finished, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl

from golf.lab.cluster import submit
from golf.lab.corpora.own_text import OwnDataset
from golf.lab.sweep.jobs import Job, Refused
from golf.run.identity import variant_id
from golf.settings.consistency import check
from tests.lab.report.runs import write_run
from tests.support import compose, golf_command, golf_main, tiny_overrides


def test_a_sweep_is_counted_and_nothing_is_written(tiny: OwnDataset, runs: Path) -> None:
    done = golf_main("-m", *tiny_overrides(tiny), "optim.matrix_lr=0.02,0.03", "seed=1,2,1", "--dry-run")
    assert done.returncode == 0 and not runs.exists(), done.stderr
    assert "6 jobs: 4 to run, 2 the same run as another" in done.stdout and "seconds unknown" in done.stdout
    write_run(runs, compose([*tiny_overrides(tiny), "optim.matrix_lr=0.02"]), 1.2, 1)
    before = sorted(runs.rglob("*"))
    done = golf_main("-m", *tiny_overrides(tiny), "optim.matrix_lr=0.02,0.03", "seed=1,2", "--dry")
    assert "4 jobs: 3 to run, 1 finished before" in done.stdout and sorted(runs.rglob("*")) == before


def test_seconds_under_a_clock_are_those_of_the_budget(tiny: OwnDataset, runs: Path) -> None:
    clock = ["budget.train_seconds=600", "launch.jobs=2"]
    done = golf_main("-m", *tiny_overrides(tiny), *clock, "seed=range(1,7)", "--dry-run")
    # Six runs, two at once: three times ten minutes, beside which the tiny scores are nothing.
    assert "30 min for 6 runs, 2 at once" in done.stdout, done.stdout


def test_a_sweep_in_rounds_is_counted_to_its_end(tiny: OwnDataset, runs: Path) -> None:
    rounds = ["sweep.until=decided", "sweep.max_seeds=4", "budget.train_seconds=60", "launch.jobs=1"]
    done = golf_main("-m", *tiny_overrides(tiny), *rounds, "optim.matrix_lr=0.02,0.03", "--dry-run")
    assert "2 variants in at most 4 rounds" in done.stdout and "at most 8 min for 8 runs" in done.stdout, done.stdout


def test_refused_runs_are_named_and_the_status_says_so(tiny: OwnDataset, runs: Path) -> None:
    done = golf_main("-m", *tiny_overrides(tiny), "model.num_heads=3,4", "--dry-run")
    assert done.returncode == 2 and "does not divide" in done.stderr and "1 of 2 runs are refused" in done.stderr


def test_a_single_run_shows_its_plan_alone(tiny: OwnDataset, runs: Path) -> None:
    done = golf_main(*tiny_overrides(tiny), "--dry-run")
    assert done.returncode == 0 and not list(runs.glob("*/seed*"))
    assert "plan: " in done.stdout and done.stdout.endswith("a dry run: nothing is trained\n")


def counting(function: Callable[..., object], calls: list[object]) -> Callable[..., object]:
    def count(*args: object, **named: object) -> object:
        calls.append(args)
        return function(*args, **named)

    return count


def test_seeds_of_a_variant_are_composed_and_checked_once(
    tiny: OwnDataset, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    monkeypatch.setattr(submit, "check", counting(check, calls))
    done = golf_command("submit", "cluster=local", *tiny_overrides(tiny), "seed=range(1,301)", "--dry-run")
    assert "composing 300 jobs" in done.stdout and "300 to submit" in done.stdout and len(calls) == 1


def test_each_seed_of_a_variant_is_the_job_that_it_is_alone(tiny: OwnDataset, runs: Path) -> None:
    base = tiny_overrides(tiny)
    jobs = [Job.of([f"seed={seed}"], compose([*base, f"seed={seed}"])) for seed in (1, 2)]
    placed = submit.make_order([*jobs, Refused(("seed=3",), "no")])
    assert [job.cfg.seed for job in placed.to_run] == [1, 2] and len({variant_id(j.cfg) for j in placed.to_run}) == 1
    assert [job.cfg for job in placed.to_run] == [submit._on_cluster(job).cfg for job in jobs]  # type: ignore[union-attr]


def test_a_setting_that_follows_the_seed_is_composed_for_each_seed(tiny: OwnDataset, runs: Path) -> None:
    write_run(runs, compose([*tiny_overrides(tiny), "data.loader_seed=2"]), 1.2, 2)
    done = golf_main("-m", *tiny_overrides(tiny), "seed=1,2", "data.loader_seed=${seed}", "--dry-run")
    assert done.returncode == 0 and "2 jobs: 1 to run, 1 finished before" in done.stdout, done


def test_ranges_are_those_that_people_write_and_thousands_of_jobs_are_composed_once(
    tiny: OwnDataset, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hydra's own sweeper makes 0.30000000000000004 and 0.4 of it, and composes each job for a trial."""
    done = golf_main("-m", *tiny_overrides(tiny), "optim.matrix_lr=range(0.1,0.4,0.1)", "--dry-run")
    assert "3 jobs: 3 to run" in done.stdout, done
    calls: list[object] = []
    monkeypatch.setattr(ConfigLoaderImpl, "load_sweep_config", counting(ConfigLoaderImpl.load_sweep_config, calls))
    done = golf_main("-m", *tiny_overrides(tiny), "seed=range(1,2501)", "--dry-run")
    assert done.returncode == 0 and "2,500 runs" in done.stdout and len(calls) <= 2, (len(calls), done)
