"""The main job: a run folder, then its ranks in this process or under torchrun. The ranks cannot tell."""

from __future__ import annotations

import sys

from golf.config import Config
from golf.launch.preflight import check_inputs
from golf.launch.rank import run_in_process
from golf.launch.torchrun import run_under_torchrun
from golf.run.folder import RunFolder, create_run_folder
from golf.run.result import Result


def train_and_score(cfg: Config) -> tuple[Result, RunFolder]:
    """Train, quantize, pack, reload and score `cfg` in a new run folder, which holds everything that came of it.

    Raises `GolfError` for inputs that cannot serve. What goes wrong later is in the result's `state` and `reason`.
    """
    check_inputs(cfg)
    folder = create_run_folder(cfg, sys.argv)
    result = run_in_process(folder) if cfg.launch.nproc == 1 else run_under_torchrun(cfg, folder)
    return result, folder
