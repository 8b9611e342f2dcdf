"""Fixtures: a run that was mirrored while it went on, and a server to mirror to."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from golf.lab.corpora.own_text import OwnDataset
from tests.support import golf_main, only_run, tiny_overrides
from tests.wandb_server import WandbServer, serve_wandb


@pytest.fixture(scope="session")
def finished(tiny: OwnDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that was mirrored offline while it went on. It is made once for all workers of pytest-xdist."""
    base = tmp_path_factory.getbasetemp()
    runs = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "mirrored"
    with runs.with_suffix(".lock").open("w") as lock, pytest.MonkeyPatch.context() as patch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not runs.exists():
            patch.setenv("GOLF_RUNS", str(runs))
            done = golf_main(
                "track=wandb", "track.mode=offline", "track.finish_seconds=900", "+tech=[xsa]", *tiny_overrides(tiny)
            )
            assert done.returncode == 0, done.stderr
    return only_run(runs)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbServer]:
    with serve_wandb() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server
