"""Fixtures: a tiny data set of our own, a run that takes a second, a folder for runs."""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch
import yaml
from hydra.core.config_store import ConfigStore

from golf.idea_folders import FOLDER, OWN, VARIABLE
from golf.lab.corpora.own_text import OwnDataset, Recipe, make_dataset
from golf.registry import TECHNIQUE_TYPES, technique_types
from golf.settings import composition
from golf.settings.config import Config
from tests.support import FinishedRun, compose, finished_overrides, golf_main, make_text, only_run, tiny_overrides

torch.set_num_threads(1)
# Hydra makes so many small objects that collecting garbage takes a tenth of the tests' time at Python's threshold.
gc.set_threshold(20_000, 20, 50)
# Tests compose a thousand times. Hydra copies its store for each, though it copies every node again that it takes out,
# and reads its files by a parser in Python.
ConfigStore.__deepcopy__ = lambda store, memo: store  # type: ignore[attr-defined]
yaml.SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Workers of pytest-xdist have a width of 80. Tables take another one where none is set.
os.environ.pop("COLUMNS", None)
hypothesis.settings.register_profile("golf", deadline=None)  # a busy machine is not a failure
hypothesis.settings.load_profile("golf")
TIME_IS_OVER = "the time of this check is over"


def pytest_collection_finish() -> None:
    """Leave modules and tests out of every later collection of garbage: they stay until the end."""
    gc.freeze()


def pytest_runtest_setup() -> None:
    """Skip a test that has not begun by GOLF_TESTS_END, in seconds since 1970: .ci/run ends within its limit."""
    if time.time() > float(os.environ.get("GOLF_TESTS_END", "inf")):
        pytest.skip(TIME_IS_OVER)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests did not run for want of time."""
    late = sum(TIME_IS_OVER in str(report.longrepr) for report in terminalreporter.stats.get("skipped", []))
    if late:
        terminalreporter.write_line(f"NOT RUN: {late} tests, as the time of this check was over (GOLF_TESTS_END)")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name a failed test at once, for a run that is stopped before its end. Workers report to the first process."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\nFAILED {report.nodeid}", flush=True)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> OwnDataset:
    """A data set of a few thousand tokens at vocabulary 320, made by our own tools."""
    root = tmp_path_factory.mktemp("tiny")
    lines = [json.dumps({"text": make_text(6, seed)}) for seed in range(60)]
    (root / "docs.jsonl").write_text("\n".join(lines))
    return make_dataset([root / "docs.jsonl"], root, Recipe("tiny", 320, val_every=6))


@pytest.fixture
def tiny_cfg(tiny: OwnDataset) -> Config:
    return compose(tiny_overrides(tiny))


@pytest.fixture(scope="session")
def finished_run(tiny: OwnDataset, tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """Return a run of six steps, made once a session for tests that only read what it left."""
    runs = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOLF_RUNS", str(runs))
        done = golf_main(*finished_overrides(tiny))
    assert done.returncode == 0, done.stderr
    return FinishedRun(done, only_run(runs))


@pytest.fixture
def registry() -> Iterator[None]:
    """Forget the techniques that a test registers."""
    before = dict(technique_types())
    yield
    TECHNIQUE_TYPES.clear()
    TECHNIQUE_TYPES.update(before)


@pytest.fixture(autouse=True)
def no_technique_is_left() -> Iterator[None]:
    """Fail a test that registers a technique and keeps it: later tests of its process would see that."""
    yield
    own = {path.name for path in FOLDER.iterdir()} | {path.stem for path in OWN.glob("*.py")}
    for name in sorted(set(TECHNIQUE_TYPES) - own):
        del TECHNIQUE_TYPES[name]
        pytest.fail(f"the technique {name} is left: ask for the fixture `forgotten` or `registry`")


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget what a test registers: techniques, schemas, modules and folders."""
    monkeypatch.setenv(VARIABLE, "")
    composition.register_techniques()
    techniques, modules = dict(technique_types()), set(sys.modules)
    options = ConfigStore.instance().repo["tech"]
    before = dict(options)
    yield
    TECHNIQUE_TYPES.clear()
    TECHNIQUE_TYPES.update(techniques)
    options.clear()
    options.update(before)
    for name in set(composition._registered) - set(techniques):
        del composition._registered[name]
    for name in [name for name in sys.modules if name not in modules and name.split(".")[0] == "ideas"]:
        del sys.modules[name]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that runs of this test go to, in this process and in commands it starts."""
    monkeypatch.setenv("GOLF_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"
