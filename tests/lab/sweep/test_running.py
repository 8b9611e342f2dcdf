"""Sweeps from the command line: nothing runs twice, one failure costs one row, and a stopped sweep resumes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from golf.artifact.codec.codecs import NEEDS_PACKAGE
from golf.lab.corpora.own_text import OwnDataset
from golf.lab.sweep.batch import _checked
from golf.lab.sweep.jobs import Job, Refused
from golf.run.result import FINAL, read_result
from tests.support import ROOT, compose, golf_main, tiny_overrides

WAIT_SECONDS = 900
ENDLESS = ["schedule.iterations=10000000", "eval.val_loss_every=0"]


def small(tiny: OwnDataset) -> list[str]:
    return [*tiny_overrides(tiny), "schedule.warmup_steps=0", "eval.val_loss_every=0", "eval.val_at_start=false"]


def states(runs: Path) -> dict[tuple[str, str], list[str]]:
    """Return the states of the attempts of every (variant id, seed): `killed` where there is no result."""
    found: dict[tuple[str, str], list[str]] = {}
    for folder in sorted(runs.glob("*/seed*")):
        result = folder / "result.json"
        state = read_result(result).state if result.exists() else "killed"
        found.setdefault((folder.parent.name[-8:], folder.name.partition(".")[0]), []).append(state)
    return found


def assert_each_finished_once(runs: Path, expected: int) -> None:
    found = states(runs)
    assert len(found) == expected, found
    assert all(sum(state in FINAL for state in attempts) == 1 for attempts in found.values()), found


def record(runs: Path) -> dict[str, object]:
    (path,) = runs.glob("sweeps/*/sweep.json")
    return json.loads(path.read_text())


def processes(runs: Path) -> list[int]:
    """Return the processes of sweeps' jobs under `runs` (Linux)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if b"golf.launch.job" in words and any(w.startswith(str(runs).encode()) for w in words):
                found.append(int(entry.name))
    return found


def wait_for(what: str, condition: Callable[[], object]) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < until, f"no {what} within {WAIT_SECONDS} s"
        time.sleep(0.05)


@contextlib.contextmanager
def sweep(runs: Path, overrides: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Start a sweep in the background. Kill what is left of it afterwards."""
    command = [sys.executable, str(ROOT / "golf/train.py"), *overrides]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
        for pid in processes(runs):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def trains(runs: Path, seed: int) -> bool:
    return any("step:3/" in p.read_text() for p in runs.glob(f"*/seed{seed}*/train.log"))


def test_a_preset_whose_package_is_missing_refuses_no_other(
    tiny: OwnDataset, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first of them is refused, and what is remembered of its inputs must not be said of the others.
    monkeypatch.setitem(NEEDS_PACKAGE, "lzma", "no_such_package")
    presets = [f"quant.codec={codec}" for codec in ("lzma", "zstd", "lzma", "zlib")]
    jobs = [Job.of([preset], compose([*small(tiny), preset])) for preset in presets]
    checked = [job.sentence[:42] if isinstance(job, Refused) else "" for job in _checked(jobs)]
    missing = "codec lzma needs the package no_such_packa"
    assert checked == [missing, "", missing, ""]


@pytest.mark.slow
def test_each_run_is_made_once_however_it_is_asked_for(tiny: OwnDataset, runs: Path) -> None:
    arguments = ["-m", *small(tiny), "optim.matrix_lr=0.02,2e-2,.03", "note=one,two", "schedule.iterations=2"]
    done = golf_main(*arguments)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "6 jobs: 2 to run, 4 the same run as another" in done.stdout and "2 variants, 2 runs" in done.stdout
    assert_each_finished_once(runs, 2)
    folders = [f for f in runs.glob("*/seed*") if (f / "output.log").read_text()]
    assert len(folders) == 2 and json.loads((folders[0] / "config.json").read_text())["launch"]["threads"] == 1
    wanted = record(runs)
    assert wanted["kind"] == "grid" and [r["seed"] for r in wanted["runs"]] == [1337, 1337]  # type: ignore[attr-defined]
    (recorded,) = runs.glob("sweeps/*")

    again = golf_main(*arguments, "launch.jobs=1")
    assert again.returncode == 0 and "6 jobs: 2 finished before, 4 the same" in again.stdout
    assert list(runs.glob("sweeps/*")) == [recorded]
    renamed = golf_main("-m", *small(tiny), "optim.matrix_lr=0.03", "name=other", "schedule.iterations=2")
    assert renamed.returncode == 0 and "1 job: 1 finished before" in renamed.stdout
    assert_each_finished_once(runs, 2)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["model=4l,5l"], "error: model=5l does not exist"),
        (["optim.matrix_lr=0.02,high"], "error: optim.matrix_lr takes a float, not 'high'"),
        (["+sweep=seeds", "modle=9l", "model=4l,9l"], "error: There is no setting modle; did you mean model?"),
        (["+sweep=leave_one_out"], "error: there is nothing to take out one at a time"),
        (["data.path=/nowhere,/nowhere_else"], "error: data.path=/nowhere: The data folder /nowhere does not exist"),
        (["model.num_heads=3,5"], "error: model.num_heads=3: model.num_heads=3 does not divide"),
    ],
)
def test_a_typo_is_reported_before_anything_trains(
    overrides: list[str], sentence: str, tiny: OwnDataset, runs: Path
) -> None:
    flag = [] if any("sweep=" in o for o in overrides) else ["-m"]
    done = golf_main(*flag, *tiny_overrides(tiny), *overrides)
    assert done.returncode == 2 and sentence in done.stderr, done.stderr
    assert not runs.exists()


@pytest.mark.slow
def test_one_crash_costs_one_row_and_ctrl_c_keeps_the_rest(tiny: OwnDataset, runs: Path) -> None:
    arguments = ["-m", *small(tiny), *ENDLESS, "seed=1,2,3,4", "launch.jobs=2", "--json"]
    with sweep(runs, arguments) as process:
        wait_for("two runs", lambda: trains(runs, 1) and trains(runs, 2))
        (victim,) = [p for p in processes(runs) if b"/seed1\0" in Path(f"/proc/{p}/cmdline").read_bytes()]
        os.kill(victim, signal.SIGKILL)
        wait_for("third run", lambda: trains(runs, 3))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == 130 and not processes(runs)
    assert {seed: found for (_, seed), found in states(runs).items()} == {
        "seed1": ["crashed"],
        "seed2": ["interrupted"],
        "seed3": ["interrupted"],
    }
    crashed = read_result(next(runs.glob("*/seed1/result.json")))
    assert "was killed by SIGKILL, perhaps by the system for want of memory" in crashed.reason
    assert "the same command continues the sweep" in err and "4 jobs" in err and "Traceback" not in out + err
    assert json.loads(out)["errors"] == ["seed=2: interrupted", "seed=3: interrupted", "seed=4: not run"]
    assert list((runs / "locks").iterdir()) == []


@pytest.mark.slow
def test_a_fresh_sweep_runs_what_has_finished_once_more(tiny: OwnDataset, runs: Path) -> None:
    arguments = ["-m", *small(tiny), "seed=1,1", "schedule.iterations=2"]
    for fresh in ("false", "true", "false"):
        assert golf_main(*arguments, f"launch.fresh={fresh}").returncode == 0
    assert list(states(runs).values()) == [["ok", "ok"]]


SEARCHER = '''
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper

class Searcher(Sweeper):
    """Halves the rate for as long as that helps; two jobs in the first batch, one in each later one."""
    def setup(self, *, hydra_context, task_function, config):
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config)

    def sweep(self, arguments):
        rates, scores = [0.08, 0.04], []
        for index in range(2):
            batch = [[*arguments, f"optim.matrix_lr={rate}"] for rate in rates[len(scores):]]
            scores += [job.return_value for job in self.launcher.launch(batch, initial_job_idx=len(scores))]
            rates.append(rates[-1] / 2)
        print("searched", scores)

ConfigStore.instance().store(group="hydra/sweeper", name="searcher",
    node={"_target_": "hydra_plugins.searcher.Searcher"}, provider="searcher")
'''


@pytest.mark.slow
def test_a_sweeper_that_searches_gets_scores_batch_by_batch(
    tiny: OwnDataset, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = tmp_path / "hydra_plugins"
    plugins.mkdir()
    (plugins / "searcher.py").write_text(SEARCHER)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    arguments = ["-m", "hydra/sweeper=searcher", *small(tiny), "schedule.iterations=2"]
    with sweep(runs, arguments) as process:
        out, err = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 0, out + err
    (line,) = [line for line in out.splitlines() if line.startswith("searched ")]
    found = {read_result(p).final_score.val_bpb for p in runs.glob("*/seed*/result.json")}  # type: ignore[union-attr]
    assert set(json.loads(line.removeprefix("searched "))) == found and len(found) == 3
    assert len(record(runs)["runs"]) == 3 and "3 variants, 3 runs" in out  # type: ignore[arg-type]


@pytest.mark.slow
def test_killed_while_it_trains_and_at_random_a_sweep_ends_with_the_same_runs(tiny: OwnDataset, runs: Path) -> None:
    arguments = ["-m", *small(tiny), "seed=1,2", "optim.matrix_lr=0.02,2e-2,0.03", "schedule.iterations=60"]
    with sweep(runs, arguments) as process:
        wait_for("two runs", lambda: trains(runs, 1) and trains(runs, 2))
        process.kill()
        wait_for("end of the runs", lambda: not processes(runs))
    with sweep(runs, arguments) as process, contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=random.Random(7).uniform(1, 14))
    wait_for("end of the runs", lambda: not processes(runs))
    done = golf_main(*arguments)
    assert done.returncode == 0, done.stderr + done.stdout
    assert_each_finished_once(runs, 4)
    assert len(record(runs)["runs"]) == 4  # type: ignore[arg-type]


@pytest.mark.slow
def test_two_sweeps_at_once_share_the_work(tiny: OwnDataset, runs: Path) -> None:
    same = [*small(tiny), "seed=1,2", "schedule.iterations=60"]
    first, second = ["-m", *same, "optim.matrix_lr=0.02"], ["-m", *same, "optim.matrix_lr=2e-2,0.03", "name=other"]
    with sweep(runs, first) as one, sweep(runs, second) as other:
        outputs = [process.communicate(timeout=WAIT_SECONDS) for process in (one, other)]
    assert (one.returncode, other.returncode) == (0, 0), outputs
    found = states(runs)
    assert len(found) == 4 and all(attempts == ["ok"] for attempts in found.values()), found
    assert list((runs / "locks").iterdir()) == []


@pytest.mark.slow
def test_what_another_sweep_is_killed_over_is_taken_over(tiny: OwnDataset, runs: Path) -> None:
    arguments = ["-m", *small(tiny), "seed=1,2", "schedule.iterations=100"]
    with sweep(runs, arguments) as first:
        wait_for("two runs", lambda: trains(runs, 1) and trains(runs, 2))
        # Stopped runs hold their locks until the other sweep has started, however long that takes.
        stopped = processes(runs)
        for process in stopped:
            os.kill(process, signal.SIGSTOP)
        with sweep(runs, arguments) as second:
            assert second.stdout
            assert "2 jobs: 2 to run" in second.stdout.readline()
            first.kill()
            # A stopped process does not end by the signal that tells it of its parent's death.
            for process in stopped:
                os.kill(process, signal.SIGCONT)
            out, err = second.communicate(timeout=WAIT_SECONDS)
            assert second.returncode == 0, out + err
    assert_each_finished_once(runs, 2)


@pytest.mark.slow
def test_two_ranks_of_a_run_share_its_part_of_the_machine(tiny: OwnDataset, runs: Path) -> None:
    done = golf_main("-m", *small(tiny), "seed=1,2", "launch.nproc=2", "schedule.iterations=3")
    assert done.returncode == 0, done.stderr + done.stdout
    assert_each_finished_once(runs, 2)
    assert all((folder / "ranks").is_dir() for folder in runs.glob("*/seed*"))


def test_a_sweep_into_a_place_that_cannot_be_written_is_one_sentence(
    tiny: OwnDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GOLF_RUNS", str(tmp_path / "file"))
    done = golf_main("-m", *small(tiny), "seed=1,2")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert re.search(r"^error: .*/file/sweeps/by_seed-\w+ cannot be written", done.stderr), done.stderr
