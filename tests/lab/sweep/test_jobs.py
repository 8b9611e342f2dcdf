"""Jobs that are the same run, the progress of a run, and the folder that stands for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from golf.lab.sweep.jobs import Job, common_overrides, dealt, distinct, label, progress_of
from golf.run.folder import attempts, create_run_folder, find_run, finished_run
from golf.run.identity import variant_id
from golf.run.locks import run_lock_name, try_lock
from golf.run.result import FINAL, Result
from golf.settings.config import Config, OptimConfig


def configured(lr: float, seed: int = 1, name: str = "x") -> Config:
    return Config(optim=OptimConfig(matrix_lr=lr), seed=seed, name=name)


def test_the_same_run_is_wanted_once_in_the_order_of_asking() -> None:
    asked = [
        Job.of([text], configured(lr, seed, name))
        for text, lr, seed, name in [
            ("a", 0.02, 1, "x"), ("b", 0.03, 1, "x"), ("c", 2e-2, 1, "other"), ("d", 0.02, 2, "x"), ("e", 0.03, 1, "x"),
        ]
    ]  # fmt: skip
    assert [j.overrides for j in distinct(asked)] == [("a",), ("b",), ("d",)]


def test_labels_leave_out_what_all_have() -> None:
    jobs = [Job.of(["model=4l", f"seed={seed}"], Config(seed=seed)) for seed in (1, 2)]
    assert [label(j, common_overrides(jobs)) for j in jobs] == ["seed=1", "seed=2"]
    assert label(jobs[0], common_overrides(jobs[:1])) == "model=4l seed=1"
    assert label(jobs[0], {"model=4l", "seed=1"}) == "the command as it is"


def attempt(cfg: Config, state: str | None) -> Path:
    folder = create_run_folder(cfg, [])
    if state:
        folder.write_result(Result(cfg.name, variant_id(cfg), cfg.seed, state=state))
    return folder.path


def test_a_run_is_its_first_finished_attempt(runs: Path) -> None:
    cfg = configured(0.02)
    key = variant_id(cfg), 1
    assert find_run(*key) is None and progress_of(key) == "missing"
    killed = attempt(cfg, None)
    assert (find_run(*key) or killed).path == killed and progress_of(key) == "killed"  # type: ignore[union-attr]
    crashed = attempt(cfg, "crashed")
    assert find_run(*key).path == crashed and finished_run(*key) is None  # type: ignore[union-attr]
    done = attempt(configured(0.02, name="other_name"), "ok")
    attempt(cfg, "interrupted")
    assert find_run(*key).path == done and progress_of(key) == "finished"  # type: ignore[union-attr]
    again = attempt(cfg, "diverged")
    found = finished_run(*key)
    assert found and found[1].path == done != again and found[0].state == "ok", "a second draw counts nothing"
    # A result that this version cannot read is none, and a later one takes its place.
    (done / "result.json").write_text(f'{{"state": "ok", "variant_id": "{key[0]}", "seed": 1}}')
    found = finished_run(*key)
    assert found and found[1].path == again and found[0].state == "diverged"
    assert [f.path for f in attempts(*key)][:2] == [killed, crashed] and len(attempts(*key)) == 5


def test_other_seeds_and_variants_are_other_runs(runs: Path) -> None:
    cfg = configured(0.02)
    attempt(cfg, "ok")
    attempt(configured(0.02, seed=10), None)
    assert [f.path.name for f in attempts(variant_id(cfg), 1)] == ["seed1"]
    assert find_run(variant_id(configured(0.03)), 1) is None and find_run(variant_id(cfg), 100) is None


def test_what_is_at_work_is_running_and_what_cannot_be_read_has_not_finished(runs: Path) -> None:
    cfg = configured(0.02)
    key = variant_id(cfg), 1
    folder = attempt(cfg, None)
    lock = try_lock(run_lock_name(*key))
    assert lock and progress_of(key) == "running"
    lock.release()
    for content in ("", "[]", "{}", '{"state": "ok", "from the future": 1}'):
        (folder / "result.json").write_text(content)
        assert finished_run(*key) is None and progress_of(key) == "killed"


def test_states_that_another_run_would_repeat_are_final() -> None:
    assert set(FINAL) == {"ok", "over_bytes", "over_time", "void", "diverged", "pruned"}


@pytest.mark.parametrize("machines", [2, 3, 4, 6])
def test_a_variant_goes_from_machine_to_machine_over_its_seeds(machines: int) -> None:
    rates, seeds = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06), (1, 2, 3, 4)
    grid = [Job.of([], configured(rate, seed)) for seed in seeds for rate in rates]
    order = dealt(grid, seeds)
    assert sorted(job.key for job in order) == sorted(job.key for job in grid)
    hosts: dict[str, set[int]] = {}
    for number, job in enumerate(order):
        hosts.setdefault(job.key[0], set()).add(number % machines)
    # In the grid's own order six variants on two, three or six machines would stay on one each.
    wanted = min(machines, len(seeds)) if len(rates) % machines == 0 else 2
    assert all(len(found) >= wanted for found in hosts.values())
    # A round of a sweep in rounds is dealt as it would be within the whole.
    assert dealt(grid[6:12], seeds) == order[6:12]
