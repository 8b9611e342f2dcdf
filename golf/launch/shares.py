"""Divide this machine among the jobs of a sweep: each gets its own GPUs, or its part of the CPU cores."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from golf.errors import GolfError
from golf.run.locks import Lock, try_lock
from golf.settings.config import Config
from golf.settings.hardware import cpu_cores, detect
from golf.words import counted

POLL_SECONDS = 0.2
WAITING = (
    "waiting for a part of the machine, which other runs have (golf status shows them); launch.jobs=… makes parts "
    "smaller, launch.threads=… takes fewer cores"
)


@dataclass(frozen=True)
class Share:
    """One job's part of this machine. `parts` are locked, so that two sweeps never give the same core or GPU twice."""

    parts: tuple[str, ...]  # names of the locks
    threads: int  # CPU threads of every rank
    gpus: tuple[str, ...] = ()  # names for CUDA_VISIBLE_DEVICES

    def __str__(self) -> str:
        threads = f"{counted(self.threads, 'CPU thread')} a rank"
        return f"{counted(len(self.gpus), 'GPU')}, {threads}" if self.gpus else threads

    def environment(self) -> dict[str, str]:
        """Return the environment variables that keep a process to this share."""
        threads = {"OMP_NUM_THREADS": str(self.threads)}
        return {**threads, "CUDA_VISIBLE_DEVICES": ",".join(self.gpus)} if self.gpus else threads


def shares(cfg: Config) -> list[Share]:
    """Return the equal shares of this machine for jobs like `cfg`. Raises `GolfError` if not even one fits."""
    if cfg.launch.device == "mps":
        # A Mac has one GPU.
        return [Share(("mps",), cfg.launch.threads or cpu_cores())]
    return _gpu_shares(cfg) if cfg.launch.device == "cuda" else _cpu_shares(cfg)


def lock_share(cfg: Config) -> tuple[Share, list[Lock]] | None:
    """Lock a share that no job has now. Return it with the locks to release later; None if all shares are taken."""
    return _lock_one_of(shares(cfg))


def _lock_one_of(candidates: Sequence[Share]) -> tuple[Share, list[Lock]] | None:
    for share in candidates:
        with contextlib.ExitStack() as stack:
            locks = []
            for part in share.parts:
                # Lock files may lie on a file system that several machines share, and each machine has its own core 0.
                if (lock := try_lock(f"{socket.gethostname()}-{part}")) is None:
                    break
                # If a later part of the share is taken, the parts before it are given back.
                locks.append(stack.enter_context(lock))
            else:
                stack.pop_all()
                return share, locks
    return None


@contextlib.contextmanager
def own_share(cfg: Config) -> Iterator[Share]:
    """Take a share of this machine for a run outside of a sweep, once one is free, until the block ends.

    Raises `GolfError` if not even one fits.
    """
    has_said = False
    while (found := _lock_one_of(_for_single_run(cfg))) is None:
        if not has_said:
            has_said = True
            print(WAITING, file=sys.stderr, flush=True)
        time.sleep(POLL_SECONDS)
    share, locks = found
    with contextlib.ExitStack() as stack:
        for lock in locks:
            stack.enter_context(lock)
        yield share


def _for_single_run(cfg: Config) -> list[Share]:
    """Return the shares that a run in this process can have: torch has seen the GPUs, so it uses the first ones."""
    fitting = shares(cfg)
    return fitting if cfg.launch.device == "cpu" else fitting[:1]


def _gpu_shares(cfg: Config) -> list[Share]:
    """Return shares of `launch.nproc` GPUs each, at most `launch.jobs`."""
    each, gpus = cfg.launch.nproc, _visible_gpus()
    if len(gpus) < each:
        raise GolfError(f"launch.nproc={each} needs {counted(each, 'GPU')}, but here are {len(gpus)}: lower it.")
    count = min(len(gpus) // each, cfg.launch.jobs or len(gpus))
    threads = cfg.launch.threads or max(1, cpu_cores() // (count * each))
    groups = (tuple(gpus[i * each : (i + 1) * each]) for i in range(count))
    # A name becomes part of a lock file's name, which cannot hold a slash.
    return [Share(tuple(f"gpu{name.replace('/', '-')}" for name in group), threads, group) for group in groups]


def _cpu_shares(cfg: Config) -> list[Share]:
    """Return as many shares as can have their own cores. More `launch.jobs` than that run on the same cores."""
    cores, nproc = cpu_cores(), cfg.launch.nproc
    count = cfg.launch.jobs or max(1, cores // (cfg.launch.threads * nproc if cfg.launch.threads else cores))
    threads = cfg.launch.threads or max(1, cores // (count * nproc))
    if (each := threads * nproc) * count > cores:
        # The shares cannot lock cores that they have in common, so their number is the only limit.
        return [Share((f"job{i}",), threads) for i in range(count)]
    return [Share(tuple(f"core{j}" for j in range(i * each, (i + 1) * each)), threads) for i in range(count)]


def _visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, by the names that CUDA_VISIBLE_DEVICES takes."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return [n.strip() for n in named.split(",")] if named else [str(i) for i in range(detect().gpus)]
