"""What torchrun and so the ranks are started with."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from golf.launch import torchrun
from golf.launch.nodes import Nodes
from golf.paths import import_variables
from golf.run.folder import create_run_folder
from golf.settings.config import Config


def test_ranks_have_the_launchers_variables_and_no_switches_of_torch_or_nccl(
    tiny_cfg: Config, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A switch such as NCCL's blocking wait would slow every step and change no number."""
    started: list[dict[str, Any]] = []

    class Agent:
        def __init__(self, command: list[str], **options: Any):
            started.append({"command": command, **options})

        def wait(self) -> int:
            return 1

    tiny_cfg.launch.nproc, tiny_cfg.launch.threads = 2, 3
    folder = create_run_folder(tiny_cfg, [])
    monkeypatch.setattr(torchrun, "subprocess", SimpleNamespace(Popen=Agent))
    result = torchrun.run_under_torchrun(tiny_cfg, folder, Nodes(), None)
    assert result.state == "crashed"
    (agent,) = started
    added = {name: value for name, value in agent["env"].items() if os.environ.get(name) != value}
    assert added == {**{k: v for k, v in import_variables().items() if k in added}, "OMP_NUM_THREADS": "3"}
    assert agent["start_new_session"] is True
