"""Make a run folder and start its ranks, one in this process or several under torchrun. Both run the same code."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import replace

from golf.errors import GolfError
from golf.launch.nodes import nodes_of_job
from golf.launch.preflight import check_inputs, check_machine, check_runs_root
from golf.launch.process import Interrupted, interruptible
from golf.launch.shares import Share, own_share, shares
from golf.launch.torchrun import run_under_torchrun
from golf.launch.worker import failed, run_in_process
from golf.run.attempts import at_work, is_at_work, next_attempt
from golf.run.folder import RunFolder
from golf.run.identity import variant_id
from golf.run.locks import run_lock_name, try_lock
from golf.run.result import Result
from golf.settings.config import Config, world_size
from golf.settings.jobs_config import is_tracked
from golf.system import cpu_cores
from golf.training.services import SERVICES

# What torchrun and mpirun tell a rank. PET_ are the defaults of torchrun's own options.
RANK_VARIABLES = {
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "NODE_RANK", "NNODES"),
    *("ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT"),
}


def train_and_score(cfg: Config) -> tuple[Result, RunFolder]:
    """Train, quantize, pack, reload and score `cfg`. Return the result and the run folder that holds all of it.

    An attempt that was cut short after a checkpoint goes on in its folder, unless `launch.fresh`. Else the folder is
    new. Raises `GolfError` for inputs that cannot be used, and if another process is at work on the same run. A later
    failure is in the result's `state` and `reason`.
    """
    check_start(cfg)
    return start(cfg)


def check_start(cfg: Config) -> None:
    """Raise `GolfError` for all that can be known to keep a run of `cfg` from starting here. It makes no folder."""
    if cfg.launch.nodes > 1:
        raise GolfError("launch.nodes is more than one machine: golf submit starts a run on several.")
    check_runs_root()
    check_inputs(cfg)
    shares(cfg)


def start(cfg: Config) -> tuple[Result, RunFolder]:
    """Run `cfg`, which `check_start` has found nothing against, as `train_and_score` says."""
    # The lock makes sweeps wait for this run. To start over beside a living run needs none.
    with try_lock(run_lock_name(variant_id(cfg), cfg.seed)) or contextlib.nullcontext() as lock:
        if lock is None and not cfg.launch.fresh:
            raise is_at_work(at_work(variant_id(cfg), cfg.seed))
        with own_share(cfg) as share:
            folder, folder_lock = next_attempt(_within(cfg, share), sys.argv)
            with folder_lock:
                return run_ranks(folder), folder


def _within(cfg: Config, share: Share) -> Config:
    """Return `cfg` with the threads of `share`, if it is less than the whole machine."""
    if cfg.launch.device != "cpu" or share.threads == max(1, cpu_cores() // cfg.launch.nproc):
        return cfg
    return replace(cfg, launch=replace(cfg.launch, threads=share.threads))


def run_ranks(folder: RunFolder) -> Result:
    """Run the ranks of `folder` and return the run's result. In a Slurm job of several nodes every task calls this."""
    cfg = folder.read_config()
    forget_ranks()
    nodes = nodes_of_job(cfg.launch.nodes)
    if nodes.is_first:
        folder.begin()
    folder.write_machine_warnings(f"node{nodes.rank}", check_machine(cfg, folder.path))
    with _mirror(cfg, folder) if nodes.is_first else contextlib.nullcontext():
        try:
            with interruptible():
                code = _code_bytes(cfg) if nodes.is_first else None
        except (Exception, Interrupted) as error:
            result = failed(cfg, folder, error)
            folder.write_failure(result)
            return result
        if world_size(cfg) == 1:
            return run_in_process(folder, code)
        return run_under_torchrun(cfg, folder, nodes, code)


def _code_bytes(cfg: Config) -> int | None:
    """Return the bytes of the script that a submission of `cfg` would contain, None if nothing here makes scripts.

    Counted before the ranks start: making a script takes seconds, and they need not know how it is made.
    """
    return SERVICES.code_bytes(cfg) if SERVICES.code_bytes else None


def forget_ranks() -> None:
    """Drop the variables of another start by torchrun, as they are left in a shell: this process starts its own."""
    for name in list(os.environ):
        if name in RANK_VARIABLES or name.startswith(("TORCHELASTIC_", "PET_")):
            del os.environ[name]


def _mirror(cfg: Config, folder: RunFolder) -> contextlib.AbstractContextManager[None]:
    """Return a context that mirrors `folder` to the tracker of `cfg`, or does nothing if there is none."""
    if SERVICES.mirrored is None or not is_tracked(cfg.track):
        return contextlib.nullcontext()
    # Under rules with a quiet clock nothing else may use the machine during the training, not even to sample it.
    sampled = cfg.track.system_metrics and not cfg.rules.quiet_clock
    return SERVICES.mirrored(folder, replace(cfg.track, system_metrics=sampled))
