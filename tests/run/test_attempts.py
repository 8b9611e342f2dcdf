"""Attempts at a run: one living writer a folder, and the furthest sound checkpoint goes on."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from golf.errors import GolfError
from golf.lab.corpora.own_text import OwnDataset
from golf.lab.report.rows import row_of
from golf.run import folder as folder_module
from golf.run.attempts import at_work, next_attempt
from golf.run.folder import RunFolder, attempts
from golf.run.identity import variant_id
from golf.run.locks import Lock
from golf.run.result import Result, read_result, result_of
from golf.run.trained import Trained, checksum, read_trained, write_trained
from golf.settings.config import Config
from tests.support import ROOT, metrics, tiny_overrides

KEY = (variant_id(Config()), Config().seed)


def checkpoint(folder: RunFolder, step: int) -> None:
    part = folder.checkpoint / f"step{step}" / "rank0.safetensors"
    part.parent.mkdir(parents=True, exist_ok=True)
    save_file({"a": np.arange(9.0)}, part)
    (folder.checkpoint / "latest.json").write_text(json.dumps({"step": step, "ranks": 1}))


def start(name: str = "try", *, fresh: bool = False) -> tuple[RunFolder, Lock]:
    cfg = Config(name=name)
    cfg.launch.fresh = fresh
    return next_attempt(cfg, [name])


@dataclass
class Attempt:
    """What the property knows of an attempt: its folder, its lock while it lives, its checkpoint's step."""

    folder: RunFolder
    lock: Lock | None
    step: int = -1
    is_sound: bool = True
    is_final: bool = False


EVENTS = st.one_of(
    st.tuples(st.just("start"), st.sampled_from(["a", "b"]), st.booleans()),
    st.tuples(st.just("save"), st.integers(0, 5), st.integers(1, 99)),
    st.tuples(st.sampled_from(["kill", "kill", "finish", "damage"]), st.integers(0, 5), st.just(0)),
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(EVENTS, min_size=4, max_size=14))
def test_one_living_writer_and_the_furthest_sound_checkpoint(
    events: list[tuple[str, object, object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any order of starts under two names, checkpoints, kills, ends and damage, with the real locks and files."""
    root = tmp_path / "runs"
    shutil.rmtree(root, ignore_errors=True)
    monkeypatch.setenv("GOLF_RUNS", str(root))
    # The clock may stand still, and asking git for its state would take most of the test's time.
    monkeypatch.setattr(folder_module, "environment_record", lambda command: {"started_at": len(known)})
    known: list[Attempt] = []
    open_ones: list[Attempt] = []
    for what, which, value in events:
        living = [a for a in known if a.lock]
        if what == "start":
            sound = [a for a in open_ones if a.step >= 0]
            try:
                folder, lock = start(str(which), fresh=bool(value))
            except GolfError as error:
                assert living and not value and str(living[0].folder.path.parent.parent) in str(error)
                continue
            assert value or not living, "a living run is never taken over, nor is another begun beside it"
            earlier = next((a for a in known if a.folder == folder), None)
            if value or not sound:
                assert earlier is None
            else:
                best = max(a.step if a.is_sound else -1 for a in sound)
                assert earlier and earlier in sound and (earlier.step if earlier.is_sound else -1) == best
            if earlier:
                earlier.lock = lock
                assert not folder.result.exists()
            else:
                known.append(Attempt(folder, lock))
                open_ones = [known[-1]] if value else [*open_ones, known[-1]]
        elif known:
            attempt = known[int(str(which)) % len(known)]
            if what == "save" and attempt.lock:
                attempt.step, attempt.is_sound = int(str(value)), True
                checkpoint(attempt.folder, attempt.step)
            elif what in ("kill", "finish") and attempt.lock:
                if what == "finish":
                    attempt.folder.write_failure(Result("x", *KEY, state="ok"))
                    open_ones = [a for a in open_ones if known.index(a) > known.index(attempt)]
                attempt.lock.release()
                attempt.lock = None
            elif what == "damage" and attempt.step >= 0 and not attempt.lock:
                part = attempt.folder.checkpoint / f"step{attempt.step}" / "rank0.safetensors"
                part.write_bytes(part.read_bytes()[:-1])
                attempt.is_sound = False
        held = [a.folder.path for a in known if a.lock]
        assert len(set(held)) == len(held) and bool(at_work(*KEY)) == bool(held)
    for attempt in known:
        if attempt.lock:
            attempt.lock.release()


def test_a_copy_of_a_living_run_is_not_alive_and_keeps_the_order_of_attempts(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = start("b")[1]
    lock.release()
    second, lock = start("a")
    checkpoint(second, 3)
    copied = tmp_path / "copied"
    shutil.copytree(runs, copied)
    # A copy may have written the files in any order.
    for age, path in enumerate(sorted(copied.rglob("*"), reverse=True)):
        os.utime(path, (age, age))
    monkeypatch.setenv("GOLF_RUNS", str(copied))
    assert (copied / second.lock.relative_to(runs)).exists() and at_work(*KEY) is None
    assert [f.path.parent.name[0] for f in attempts(*KEY)] == ["b", "a"]
    folder, copied_lock = start("c")
    assert folder.path == copied / second.path.relative_to(runs)
    copied_lock.release()
    monkeypatch.setenv("GOLF_RUNS", str(runs))
    assert at_work(*KEY) == second
    lock.release()


def test_the_next_attempt_goes_on_where_a_checkpoint_is_and_takes_nothing_from_a_finished_run(runs: Path) -> None:
    def started(cfg: Config, command: list[str]) -> RunFolder:
        folder, lock = next_attempt(cfg, command)
        lock.release()
        return folder

    cfg = Config(name="try")
    stopped = started(cfg, ["golf"])
    stopped.write_failure(Result("try", variant_id(cfg), cfg.seed, state="interrupted"))
    second = started(cfg, [])
    assert second.path.name == "seed1337.2", "without a checkpoint it starts over"
    checkpoint(second, 4)
    second.write_failure(Result("try", variant_id(cfg), cfg.seed, state="crashed"))
    second.error.write_text("of the attempt before")

    cfg.launch.nproc, cfg.name = 2, "renamed"
    resumed = started(cfg, ["golf", "again"])
    assert resumed == second and resumed.read_config() == cfg
    assert json.loads((resumed.path / "environment.json").read_text())["command"] == ["golf", "again"]
    assert not resumed.result.exists() and not resumed.error.exists()
    cfg.launch.fresh = True
    assert started(cfg, []).path.parent.name.startswith("renamed"), "asked to start over"

    newest = started(cfg, [])
    checkpoint(newest, 9)
    newest.write_failure(Result("try", variant_id(cfg), cfg.seed, state="ok"))
    cfg.launch.fresh = False
    assert started(cfg, []) != newest and newest.result.exists(), "a finished run is not resumed"


TINY = (
    "schedule.iterations=100000",
    "launch.checkpoint_seconds=0.2",
    "budget.train_seconds=0",
    "launch.train_log_every=1",
)


def train(tiny: OwnDataset, *overrides: str) -> subprocess.Popen[str]:
    command = [sys.executable, "golf/train.py", *tiny_overrides(tiny), *TINY, *overrides]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def reached(folder: Path, step: int) -> None:
    deadline = time.monotonic() + 600
    while not (folder / "checkpoint/latest.json").exists() or metrics(folder, "train")[-1]["step"] < step:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_a_second_start_is_refused_and_a_third_goes_on_after_a_kill(tiny: OwnDataset, runs: Path) -> None:
    first = train(tiny, "name=one")
    (variant,) = {path.parent for path in wait_for(runs, "one-*/seed*")}
    folder = variant / "seed1337"
    reached(folder, 20)
    for name in ("one", "two"):
        second = train(tiny, f"name={name}")
        said = second.communicate(timeout=900)[1]
        assert second.returncode == 2 and said.count("\n") == 1, said
        assert f"Another process is at work on this run in {folder}, at step " in said
    assert first.poll() is None and [path.name for path in variant.iterdir()] == ["seed1337"]
    first.send_signal(signal.SIGKILL)
    first.wait()
    third = train(tiny, "name=three")
    deadline = time.monotonic() + 600
    while not metrics(folder, "resumed"):
        assert third.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    third.terminate()
    third.communicate(timeout=900)
    assert read_result(folder / "result.json").state == "interrupted"
    assert not (folder / "lock").exists() and list(runs.glob("t*-*/seed*")) == []


def wait_for(runs: Path, pattern: str) -> list[Path]:
    deadline = time.monotonic() + 600
    while not (found := list(runs.glob(pattern))):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def trained(folder: RunFolder, weights: bytes = b"weights") -> None:
    """Leave what a run leaves that was killed while it was packed."""
    result = Result(folder.path.parent.name.rpartition("-")[0], *KEY, steps=7)
    write_trained(folder, Trained(result, [], 1, "code", checksum(weights)))
    folder.weights.write_bytes(weights)


def test_an_attempt_whose_training_has_ended_goes_on_before_any_checkpoint(runs: Path) -> None:
    done, lock = start("done")
    trained(done)
    lock.release()
    later, lock = start("later", fresh=True)
    lock.release()
    assert later != done
    shutil.rmtree(later.path)
    further = RunFolder(shutil.copytree(done.path, done.path.with_name(f"{done.path.name}.2")))
    further.trained.unlink()
    checkpoint(further, 99)
    resumed, lock = start("again")
    lock.release()
    assert resumed == done and read_trained(done) and "not scored" in row_of(done.path).reason


def change(folder: RunFolder, what: str) -> None:
    content = folder.trained.read_bytes()
    if what == "weights":
        folder.weights.write_bytes(b"weightS")
    elif what == "foreign":
        values = json.loads(content)["trained"]
        other = result_of({**values["result"], "seed": 2})
        write_trained(folder, Trained(**{**values, "result": other}))
    else:
        changed = {"cut": content[:-30], "empty": b"", "digit": content.replace(b'"steps": 7', b'"steps": 8')}
        folder.trained.write_bytes({**changed, "nested": b"[" * 100_000, "other": b"[1]", "bytes": b"\xff\xfe"}[what])


@pytest.mark.parametrize("what", ["weights", "foreign", "cut", "empty", "digit", "nested", "other", "bytes"])
@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_damaged_or_foreign_trained_weights_are_a_sentence_and_the_run_is_trained_again(
    what: str, has_checkpoint: bool, runs: Path
) -> None:
    damaged, lock = start()
    trained(damaged)
    lock.release()
    change(damaged, what)
    if has_checkpoint:
        checkpoint(damaged, 3)
    folder, lock = start()
    lock.release()
    (said,) = folder.read_machine_warnings()
    assert (folder == damaged) == has_checkpoint and not folder.is_trained
    assert said.startswith(f"The trained weights in {damaged.path} cannot be used (") and said.endswith(
        "trained again."
    )
    # Once: the next start goes on as usual.
    assert not damaged.is_trained and damaged.weights.exists()
