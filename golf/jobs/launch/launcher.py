"""The main job: a run folder, then its ranks in this process or under torchrun. The ranks cannot tell."""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import replace

from golf.errors import GolfError
from golf.jobs.launch.nodes import nodes_of_job
from golf.jobs.launch.preflight import check_inputs, check_machine
from golf.jobs.launch.rank import run_in_process
from golf.jobs.launch.torchrun import run_under_torchrun
from golf.run.folder import RunFolder, create_run_folder, finished_run
from golf.run.identity import variant_id
from golf.run.locks import run_lock_name, try_lock
from golf.run.result import Result
from golf.settings.config import Config, is_tracked, world_size

POLL_SECONDS = 1.0


def train_and_score(cfg: Config) -> tuple[Result, RunFolder]:
    """Train, quantize, pack, reload and score `cfg` in a new run folder, which holds everything that came of it.

    Raises `GolfError` for inputs that cannot serve. What goes wrong later is in the result's `state` and `reason`.
    """
    if cfg.launch.nodes > 1:
        raise GolfError("launch.nodes is more than one machine: scripts/submit.py starts a run on several.")
    check_inputs(cfg)
    with contextlib.ExitStack() as stack:
        if lock := try_lock(run_lock_name(variant_id(cfg), cfg.seed)):  # sweeps wait for it; a locked run is run twice
            stack.callback(lock.release)
        folder = create_run_folder(cfg, sys.argv)
        return run_ranks(folder), folder


def train_once(cfg: Config) -> tuple[Result, RunFolder]:
    """The run of a sweep: as it was if it has finished before (unless `launch.fresh`), else `train_and_score`.

    Waits while another process is at work on the same run. Other launchers than golf's own come through here.
    """
    key = variant_id(cfg), cfg.seed
    while (lock := try_lock(run_lock_name(*key))) is None:
        time.sleep(POLL_SECONDS)
    try:
        done = None if cfg.launch.fresh else finished_run(*key)
        return done or train_and_score(cfg)
    finally:
        lock.release()


def run_ranks(folder: RunFolder) -> Result:
    """Run what `folder` was made for, on this machine or, in every task of a Slurm job, on several."""
    cfg = folder.read_config()
    nodes = nodes_of_job(cfg.launch.nodes)
    folder.write_machine_warnings(nodes.rank, check_machine(cfg, folder.path))
    with _mirror(cfg, folder) if nodes.rank == 0 else contextlib.nullcontext():
        return run_in_process(folder) if world_size(cfg) == 1 else run_under_torchrun(cfg, folder, nodes)


def _mirror(cfg: Config, folder: RunFolder) -> contextlib.AbstractContextManager[None]:
    if not is_tracked(cfg.track):
        return contextlib.nullcontext()
    from golf.jobs.track.companion import mirrored

    quiet = cfg.rules.quiet_clock
    return mirrored(folder, replace(cfg.track, system_metrics=cfg.track.system_metrics and not quiet))
